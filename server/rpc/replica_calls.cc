// SPDX-License-Identifier: Apache-2.0

#include "server/rpc/replica_calls.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <chrono>
#include <utility>
#include <variant>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/runtime/status_macros.h"
#include "proto/bulk_options.h"
#include "proto/replica_service.grpc.pb.h"
#include "proto/status_mapping.h"
#include "server/rpc/outgoing_calls.h"
#include "server/rpc/replica_convert.h"

namespace lodestar::rpc {
namespace {

constexpr absl::Duration kBeginPatience = absl::Seconds(30);
constexpr absl::Duration kCheckPatience = absl::Seconds(3);

using MirrorStream = grpc::ClientReaderWriter<v1::MirrorRequest, v1::MirrorReply>;

void SetDeadline(grpc::ClientContext& context, absl::Duration patience) {
  context.set_deadline(std::chrono::system_clock::now() + absl::ToChronoMilliseconds(patience));
}

// Converts the status of a call. These errors mean that the replica cannot be reached, and become
// Unavailable:
// - CANCELLED: this process has closed the connection.
// - UNIMPLEMENTED: another program than a replica serves there.
// - DEADLINE_EXCEEDED.
absl::Status FromCall(const grpc::Status& status) {
  absl::Status native = wire::FromGrpcStatus(status);
  if (absl::IsCancelled(native))
    native = absl::UnavailableError("this server ended its connection to the replica");
  if (absl::IsUnimplemented(native)) {
    native =
        absl::UnavailableError("no replica runs at that address; start ps_server --replica there");
  }
  if (absl::IsDeadlineExceeded(native))
    native = absl::UnavailableError("the replica did not answer in time");
  return native;
}

// A Channel has what calls need to reach the replica. It lives until the last call is over.
struct Channel {
  std::unique_ptr<v1::ReplicaService::Stub> stub;
  OutgoingCalls calls;
};

// A Call is one call, registered with the calls that can be cancelled.
class Call {
 public:
  explicit Call(std::shared_ptr<Channel> channel) : channel_(std::move(channel)) {
    has_begun_ = channel_->calls.Begin(&context_);
  }
  ~Call() {
    if (has_begun_) channel_->calls.End(&context_);
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  absl::Status begun() const {
    return has_begun_ ? absl::OkStatus()
                      : absl::UnavailableError("this server ended its connection to the replica");
  }
  grpc::ClientContext& context() { return context_; }
  v1::ReplicaService::Stub& stub() { return *channel_->stub; }

 private:
  const std::shared_ptr<Channel> channel_;
  grpc::ClientContext context_;
  bool has_begun_;
};

class GrpcLane final : public replica::ReplicaLane {
 public:
  GrpcLane(std::shared_ptr<Channel> channel, replica::ReplicaStore::Term term)
      : term_(term), call_(std::move(channel)) {
    if (call_.begun().ok()) stream_ = call_.stub().Mirror(&call_.context());
  }
  ~GrpcLane() override {
    call_.context().TryCancel();
    absl::MutexLock lock(&read_mutex_);
    Finish().IgnoreError();
  }

  absl::Status Send(replica::FileChange change) override {
    auto* const append = std::get_if<replica::AppendChange>(&change);
    if (append == nullptr || append->bytes.size() <= wire::kChunkBytes) {
      return Write(ToProto(std::move(change))).status();
    }
    for (absl::string_view rest = append->bytes; !rest.empty();
         rest.remove_prefix(std::min(rest.size(), wire::kChunkBytes))) {
      RETURN_IF_ERROR(Write(ToProto(replica::AppendChange{
                                append->file, std::string(rest.substr(0, wire::kChunkBytes))}))
                          .status());
    }
    return absl::OkStatus();
  }

  absl::StatusOr<uint64_t> Ask() override { return Write({}); }

  absl::Status Await(uint64_t question) override {
    absl::MutexLock lock(&read_mutex_);
    while (answered_ < question) {
      v1::MirrorReply reply;
      if (stream_ == nullptr || !stream_->Read(&reply)) return Finish();
      answered_ = std::max(answered_, reply.number());
    }
    return absl::OkStatus();
  }

 private:
  absl::StatusOr<uint64_t> Write(v1::MirrorRequest request) ABSL_LOCKS_EXCLUDED(write_mutex_) {
    RETURN_IF_ERROR(call_.begun());
    {
      absl::MutexLock lock(&write_mutex_);
      if (num_written_ == 0) *request.mutable_term() = ToProto(term_);
      request.set_number(++num_written_);
      if (stream_->Write(request)) return num_written_;
    }
    absl::MutexLock lock(&read_mutex_);
    return Finish();
  }

  // Returns why the replica has ended the call.
  absl::Status Finish() ABSL_EXCLUSIVE_LOCKS_REQUIRED(read_mutex_) {
    if (end_.ok()) {
      end_ = call_.begun();
      v1::MirrorReply reply;
      while (end_.ok() && stream_->Read(&reply)) continue;
      if (end_.ok()) end_ = FromCall(stream_->Finish());
      if (end_.ok()) end_ = absl::UnavailableError("the replica has ended the call");
    }
    return end_;
  }

  const replica::ReplicaStore::Term term_;
  Call call_;
  std::unique_ptr<MirrorStream> stream_;  // null: the connection had ended before
  absl::Mutex write_mutex_;
  uint64_t num_written_ ABSL_GUARDED_BY(write_mutex_) = 0;
  absl::Mutex read_mutex_;
  uint64_t answered_ ABSL_GUARDED_BY(read_mutex_) = 0;
  absl::Status end_ ABSL_GUARDED_BY(read_mutex_);
};

class GrpcConnection final : public replica::ReplicaConnection {
 public:
  GrpcConnection(const std::string& replica, const wire::TransportSecurity& security)
      : channel_(std::make_shared<Channel>()) {
    channel_->stub = v1::ReplicaService::NewStub(grpc::CreateCustomChannel(
        replica, security.channel_credentials(), wire::DataChannelArguments()));
  }

  absl::StatusOr<replica::TermGrant> BeginTerm(const replica::TermRequest& request) override {
    term_ = {request.shard, request.term, request.connection};
    Call call(channel_);
    RETURN_IF_ERROR(call.begun());
    SetDeadline(call.context(), kBeginPatience);
    v1::BeginTermReply reply;
    RETURN_IF_ERROR(FromCall(call.stub().BeginTerm(&call.context(), ToProto(request), &reply)));
    return replica::TermGrant{
        reply.is_to_fetch() ? replica::TermVerdict::kFetch : replica::TermVerdict::kUpdate,
        reply.keeps_checkpoints()};
  }

  absl::Status CheckTerm() override {
    Call call(channel_);
    RETURN_IF_ERROR(call.begun());
    SetDeadline(call.context(), kCheckPatience);
    v1::CheckTermRequest request;
    *request.mutable_term() = ToProto(term_);
    v1::CheckTermReply reply;
    return FromCall(call.stub().CheckTerm(&call.context(), request, &reply));
  }

  absl::StatusOr<std::vector<replica::FileEntry>> ListFiles() override {
    Call call(channel_);
    RETURN_IF_ERROR(call.begun());
    v1::ListFilesRequest request;
    *request.mutable_term() = ToProto(term_);
    const auto replies = call.stub().ListFiles(&call.context(), request);
    std::vector<replica::FileEntry> entries;
    v1::ListFilesReply reply;
    absl::Status status;
    while (status.ok() && replies->Read(&reply)) {
      for (const v1::FileEntry& entry : reply.entries()) {
        absl::StatusOr<replica::FileEntry> native = FromProto(entry);
        status.Update(native.status());
        if (native.ok()) entries.push_back(*std::move(native));
      }
    }
    RETURN_IF_ERROR(Finish(call, *replies, status));
    return entries;
  }

  absl::Status ReadFile(const replica::MirroredPath& path,
                        absl::FunctionRef<absl::Status(absl::string_view block)> take) override {
    Call call(channel_);
    RETURN_IF_ERROR(call.begun());
    v1::ReadFileRequest request;
    *request.mutable_term() = ToProto(term_);
    *request.mutable_path() = ToProto(path);
    const auto replies = call.stub().ReadFile(&call.context(), request);
    v1::ReadFileReply reply;
    absl::Status status;
    while (status.ok() && replies->Read(&reply)) status = take(reply.data());
    return Finish(call, *replies, status);
  }

  absl::StatusOr<std::unique_ptr<replica::ReplicaLane>> OpenLane() override {
    return std::make_unique<GrpcLane>(channel_, term_);
  }

  void Cancel() override { channel_->calls.CancelAll(); }

 private:
  // Ends a stream of replies, and returns its final status. If `taken` is an error, the stream is
  // cancelled and the result is `taken`.
  template <typename Replies>
  static absl::Status Finish(Call& call, Replies& replies, const absl::Status& taken) {
    if (!taken.ok()) call.context().TryCancel();
    const absl::Status finished = FromCall(replies.Finish());
    return taken.ok() ? finished : taken;
  }

  const std::shared_ptr<Channel> channel_;
  replica::ReplicaStore::Term term_;
};

}  // namespace

std::unique_ptr<replica::ReplicaConnection> ConnectReplica(
    const std::string& replica, const wire::TransportSecurity& security) {
  return std::make_unique<GrpcConnection>(replica, security);
}

}  // namespace lodestar::rpc

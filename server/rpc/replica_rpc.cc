// SPDX-License-Identifier: Apache-2.0

#include "server/rpc/replica_rpc.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/logging/logging.h"
#include "common/runtime/peer_text.h"
#include "common/runtime/status_macros.h"
#include "proto/bulk_options.h"
#include "proto/status_mapping.h"
#include "server/rpc/replica_convert.h"

namespace lodestar::rpc {
namespace {

constexpr size_t kMaxServerBytes = 256;

constexpr int kEntriesPerReply = 1000;

using MirrorStream = grpc::ServerReaderWriter<v1::MirrorReply, v1::MirrorRequest>;

absl::Status Gone() { return absl::CancelledError("the server's connection has ended"); }

// Carries out changes until the server ends the stream or an error occurs.
absl::Status CarryAll(replica::ReplicaStore& store, MirrorStream& stream) {
  std::unique_ptr<replica::ReplicaStore::Lane> lane;
  uint64_t last_number = 0;
  v1::MirrorRequest request;
  while (stream.Read(&request)) {
    if (lane == nullptr) {
      ASSIGN_OR_RETURN(lane, store.OpenLane(FromProto(request.term())));
    }
    const uint64_t number = request.number();
    if (number != ++last_number) {
      return absl::DataLossError(absl::StrCat("message ", number,
                                              " of the server arrived at the replica, but message ",
                                              last_number, " was expected"));
    }
    if (request.change_case() == v1::MirrorRequest::CHANGE_NOT_SET) {
      v1::MirrorReply reply;
      reply.set_number(number);
      if (!stream.Write(reply)) return Gone();
      continue;
    }
    ASSIGN_OR_RETURN(const replica::FileChange change, FromProto(std::move(request)));
    RETURN_IF_ERROR(lane->Carry(change));
  }
  return absl::OkStatus();
}

}  // namespace

grpc::Status ReplicaRpc::BeginTerm(grpc::ServerContext* /*context*/,
                                   const v1::BeginTermRequest* request, v1::BeginTermReply* reply) {
  const auto begin = [&]() -> absl::StatusOr<replica::TermGrant> {
    ASSIGN_OR_RETURN(const replica::TermRequest native, FromProto(*request));
    ASSIGN_OR_RETURN(const replica::TermGrant grant, store_->BeginTerm(native));
    logging::LogInfo("shard={}: this replica receives the journal of the server on {}{}",
                     native.shard, native.server,
                     grant.verdict == replica::TermVerdict::kFetch
                         ? ", which first copies the data of this replica"
                         : "");
    return grant;
  };
  const absl::StatusOr<replica::TermGrant> grant = begin();
  if (!grant.ok()) {
    logging::LogWarn("this replica refuses the server on {}: {}",
                     PeerText(request->server(), kMaxServerBytes), grant.status().message());
    return wire::ToGrpcStatus(grant.status());
  }
  reply->set_is_to_fetch(grant->verdict == replica::TermVerdict::kFetch);
  reply->set_keeps_checkpoints(grant->keeps_checkpoints);
  return grpc::Status::OK;
}

grpc::Status ReplicaRpc::CheckTerm(grpc::ServerContext* /*context*/,
                                   const v1::CheckTermRequest* request,
                                   v1::CheckTermReply* /*reply*/) {
  return wire::ToGrpcStatus(store_->CheckTerm(FromProto(request->term())));
}

grpc::Status ReplicaRpc::ListFiles(grpc::ServerContext* /*context*/,
                                   const v1::ListFilesRequest* request,
                                   grpc::ServerWriter<v1::ListFilesReply>* replies) {
  const absl::StatusOr<std::vector<replica::FileEntry>> entries =
      store_->ListFiles(FromProto(request->term()));
  if (!entries.ok()) return wire::ToGrpcStatus(entries.status());
  v1::ListFilesReply reply;
  for (const replica::FileEntry& entry : *entries) {
    *reply.add_entries() = ToProto(entry);
    if (reply.entries_size() < kEntriesPerReply) continue;
    if (!replies->Write(reply)) return wire::ToGrpcStatus(Gone());
    reply.Clear();
  }
  if (reply.entries_size() > 0) replies->Write(reply);
  return grpc::Status::OK;
}

grpc::Status ReplicaRpc::ReadFile(grpc::ServerContext* /*context*/,
                                  const v1::ReadFileRequest* request,
                                  grpc::ServerWriter<v1::ReadFileReply>* replies) {
  const absl::StatusOr<replica::MirroredPath> path = FromProto(request->path());
  if (!path.ok()) return wire::ToGrpcStatus(path.status());
  return wire::ToGrpcStatus(
      store_->ReadFile(FromProto(request->term()), *path, [&](absl::string_view block) {
        for (; !block.empty(); block.remove_prefix(std::min(block.size(), wire::kChunkBytes))) {
          v1::ReadFileReply reply;
          reply.set_data(std::string(block.substr(0, wire::kChunkBytes)));
          if (!replies->Write(reply)) return Gone();
        }
        return absl::OkStatus();
      }));
}

grpc::Status ReplicaRpc::Mirror(grpc::ServerContext* /*context*/, MirrorStream* stream) {
  const absl::Status status = CarryAll(*store_, *stream);
  if (!status.ok() && !absl::IsCancelled(status)) logging::LogWarn("{}", status.message());
  return wire::ToGrpcStatus(status);
}

}  // namespace lodestar::rpc

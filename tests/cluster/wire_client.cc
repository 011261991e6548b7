// SPDX-License-Identifier: Apache-2.0

#include "tests/cluster/wire_client.h"

#include <chrono>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/crc32c/crc32c.h"
#include "common/process/version.h"
#include "common/runtime/status_macros.h"
#include "proto/status_mapping.h"

namespace lodestar {
namespace {

// A chunk is small, so that buckets take several chunks.
constexpr int64_t kChunkElements = 1000;

void SetDeadline(grpc::ClientContext& context) {
  context.set_deadline(std::chrono::system_clock::now() +
                       absl::ToChronoMilliseconds(WireClient::kCallDeadline));
  context.set_wait_for_ready(true);
}

}  // namespace

WireClient::WireClient(const std::string& coordinator, const std::string& name,
                       uint64_t instance_id)
    : coordinator_(coordinator),
      name_(name),
      instance_id_(instance_id),
      cluster_(v1::ClusterService::NewStub(
          grpc::CreateChannel(coordinator, grpc::InsecureChannelCredentials()))) {}

void WireClient::Prepare(grpc::ClientContext& context) const {
  SetDeadline(context);
  context.AddMetadata("lodestar-life", registration_.life_secret());
}

absl::Status WireClient::TryRegister(const v1::Layout& layout) {
  v1::RegisterRequest request;
  request.set_wire_version(process::kWireVersion);
  request.set_name(name_);
  request.set_instance_id(instance_id_);
  *request.mutable_layout() = layout;
  grpc::ClientContext context;
  SetDeadline(context);
  v1::RegisterReply reply;
  RETURN_IF_ERROR(wire::FromGrpcStatus(cluster_->Register(&context, request, &reply)));
  registration_ = reply;
  parameters_.clear();
  for (const v1::ServerAddress& server : reply.servers()) {
    parameters_.push_back(v1::ParameterService::NewStub(
        grpc::CreateChannel(server.address(), grpc::InsecureChannelCredentials())));
  }
  return absl::OkStatus();
}

absl::Status WireClient::Register(const v1::Layout& layout) {
  const absl::Time deadline = absl::Now() + kCallDeadline;
  while (true) {
    const absl::Status status = TryRegister(layout);
    if (!absl::IsUnavailable(status) || absl::Now() > deadline) return status;
    absl::SleepFor(absl::Milliseconds(10));
  }
}

absl::Status WireClient::SupplyAndJoin(const std::vector<float>& weights) {
  if (registration_.needs_initial_weights()) {
    RETURN_IF_ERROR(Push(v1::CONTRIBUTION_KIND_INITIAL_WEIGHTS, 0, 0, weights).status());
  }
  return Join();
}

absl::Status WireClient::Join() {
  v1::JoinRequest request;
  request.set_worker_id(registration_.worker_id());
  request.set_incarnation(registration_.incarnation());
  request.set_layout_hash(registration_.layout().hash());
  grpc::ClientContext context;
  Prepare(context);
  v1::JoinReply reply;
  return wire::FromGrpcStatus(cluster_->Join(&context, request, &reply));
}

absl::StatusOr<v1::Grant> WireClient::AskForGrant(const std::optional<v1::RoundReport>& report,
                                                  absl::Duration hold, bool ahead) {
  v1::GrantRequest request;
  request.set_worker_id(registration_.worker_id());
  request.set_incarnation(registration_.incarnation());
  request.set_hold_ms(absl::ToInt64Milliseconds(hold));
  request.set_ahead(ahead);
  if (report.has_value()) *request.mutable_report() = *report;
  grpc::ClientContext context;
  Prepare(context);
  v1::Grant grant;
  RETURN_IF_ERROR(wire::FromGrpcStatus(cluster_->NextGrant(&context, request, &grant)));
  return grant;
}

absl::StatusOr<v1::Grant> WireClient::NextGrant(const std::optional<v1::RoundReport>& report) {
  const absl::Time deadline = absl::Now() + kCallDeadline;
  while (true) {
    ASSIGN_OR_RETURN(v1::Grant grant, AskForGrant(report, absl::Seconds(5)));
    if (grant.kind() != v1::Grant::KIND_WAIT) return grant;
    if (absl::Now() > deadline) return absl::DeadlineExceededError(grant.reason());
  }
}

v1::ParameterService::Stub* WireClient::StubOf(const v1::ServerAddress& server) {
  return parameters_[server.shard()].get();
}

absl::StatusOr<v1::PushReply> WireClient::Push(v1::ContributionKind kind, int64_t round,
                                               int64_t base_version,
                                               const std::vector<float>& elements) {
  v1::PushChunk prototype;
  prototype.set_worker_id(registration_.worker_id());
  prototype.set_incarnation(registration_.incarnation());
  prototype.set_round(round);
  prototype.set_base_version(base_version);
  prototype.set_encoding(v1::ENCODING_FP32);
  prototype.set_kind(kind);
  v1::PushReply total;
  for (const v1::ServerAddress& server : registration_.servers()) {
    RETURN_IF_ERROR(PushToServer(server, prototype, elements, &total));
  }
  return total;
}

absl::Status WireClient::PushToServer(const v1::ServerAddress& server,
                                      const v1::PushChunk& prototype,
                                      const std::vector<float>& elements, v1::PushReply* total) {
  grpc::ClientContext context;
  Prepare(context);
  v1::PushReply reply;
  const auto writer = StubOf(server)->Push(&context, &reply);
  for (int index = 0; index < registration_.buckets_size(); ++index) {
    const v1::BucketSpec& bucket = registration_.buckets(index);
    if (bucket.shard() != server.shard()) continue;
    for (int64_t begin = bucket.begin(); begin < bucket.end(); begin += kChunkElements) {
      const int64_t end = std::min(begin + kChunkElements, bucket.end());
      v1::PushChunk chunk = prototype;
      chunk.set_bucket(index);
      chunk.set_offset(begin - bucket.begin());
      chunk.set_data(elements.data() + begin, (end - begin) * sizeof(float));
      chunk.set_crc32c(crc32c::Crc32c(chunk.data().data(), chunk.data().size()));
      if (!writer->Write(chunk)) break;
    }
  }
  writer->WritesDone();
  RETURN_IF_ERROR(wire::FromGrpcStatus(writer->Finish()));
  total->set_buckets_counted(total->buckets_counted() + reply.buckets_counted());
  total->set_buckets_duplicate(total->buckets_duplicate() + reply.buckets_duplicate());
  total->set_buckets_late(total->buckets_late() + reply.buckets_late());
  return absl::OkStatus();
}

absl::StatusOr<std::vector<float>> WireClient::Pull(int64_t min_round) {
  const int last = registration_.servers_size() - 1;
  std::vector<float> elements(registration_.servers(last).end());
  for (const v1::ServerAddress& server : registration_.servers()) {
    RETURN_IF_ERROR(PullFromServer(server, min_round, &elements));
  }
  return elements;
}

absl::Status WireClient::PullFromServer(const v1::ServerAddress& server, int64_t min_round,
                                        std::vector<float>* elements) {
  v1::PullRequest request;
  request.set_worker_id(registration_.worker_id());
  request.set_incarnation(registration_.incarnation());
  request.set_min_round(min_round);
  request.set_encoding(v1::ENCODING_FP32);
  for (int index = 0; index < registration_.buckets_size(); ++index) {
    if (registration_.buckets(index).shard() == server.shard()) request.add_buckets(index);
  }
  grpc::ClientContext context;
  Prepare(context);
  const auto reader = StubOf(server)->Pull(&context, request);
  v1::PullChunk chunk;
  while (reader->Read(&chunk)) {
    if (crc32c::Crc32c(chunk.data().data(), chunk.data().size()) !=
        static_cast<uint32_t>(chunk.crc32c())) {
      return absl::DataLossError("checksum of a pulled chunk");
    }
    const int64_t begin = registration_.buckets(chunk.bucket()).begin() + chunk.offset();
    std::memcpy(elements->data() + begin, chunk.data().data(), chunk.data().size());
  }
  return wire::FromGrpcStatus(reader->Finish());
}

absl::Status WireClient::Heartbeat() {
  v1::HeartbeatRequest request;
  request.set_worker_id(registration_.worker_id());
  request.set_incarnation(registration_.incarnation());
  grpc::ClientContext context;
  Prepare(context);
  v1::HeartbeatReply reply;
  return wire::FromGrpcStatus(cluster_->Heartbeat(&context, request, &reply));
}

absl::Status WireClient::Leave(const std::optional<v1::RoundReport>& report,
                               const std::string& reason) {
  v1::LeaveRequest request;
  request.set_worker_id(registration_.worker_id());
  request.set_incarnation(registration_.incarnation());
  request.set_reason(reason);
  if (report.has_value()) *request.mutable_report() = *report;
  grpc::ClientContext context;
  Prepare(context);
  v1::LeaveReply reply;
  return wire::FromGrpcStatus(cluster_->Leave(&context, request, &reply));
}

v1::Layout FlatLayout(const std::vector<int64_t>& lengths) {
  v1::Layout layout;
  for (const int64_t length : lengths) {
    v1::TensorSpec* tensor = layout.add_tensors();
    tensor->set_name(absl::StrCat("tensor", layout.tensors_size() - 1));
    tensor->add_shape(length);
    tensor->set_block(layout.tensors_size() - 1);
  }
  return layout;
}

v1::RoundReport ReportOf(const v1::Grant& grant) {
  v1::RoundReport report;
  report.set_round(grant.round());
  report.set_num_samples(grant.num_samples());
  report.set_num_predictions(grant.num_samples());
  report.set_loss_sum(2.0 * static_cast<double>(grant.num_samples()));
  return report;
}

absl::StatusOr<v1::ClusterStatus> FetchStatus(const std::string& server) {
  const auto stub =
      v1::StatusService::NewStub(grpc::CreateChannel(server, grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  SetDeadline(context);
  v1::ClusterStatus status;
  RETURN_IF_ERROR(wire::FromGrpcStatus(stub->GetStatus(&context, {}, &status)));
  return status;
}

}  // namespace lodestar

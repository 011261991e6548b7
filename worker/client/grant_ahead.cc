// SPDX-License-Identifier: Apache-2.0

#include "worker/client/grant_ahead.h"

#include <chrono>
#include <utility>

#include "proto/bulk_options.h"
#include "proto/convert_cluster.h"
#include "proto/status_mapping.h"

namespace lodestar::client {

bool HasRound(const v1::Grant& grant) {
  return grant.kind() == v1::Grant::KIND_TRAIN || grant.kind() == v1::Grant::KIND_EVALUATE;
}

GrantAhead::GrantAhead(std::shared_ptr<v1::ClusterService::Stub> stub, v1::GrantRequest request,
                       std::string life_secret, absl::Duration timeout, CallTracer* tracer)
    : stub_(std::move(stub)),
      request_(std::move(request)),
      life_secret_(std::move(life_secret)),
      timeout_(timeout),
      tracer_(tracer),
      asker_([this] { Run(); }) {}

GrantAhead::~GrantAhead() {
  Cancel();
  asker_.join();
}

void GrantAhead::Cancel() {
  absl::MutexLock lock(&mutex_);
  is_over_ = true;
  if (call_in_progress_ != nullptr) call_in_progress_->TryCancel();
}

std::optional<v1::Grant> GrantAhead::Await(absl::Duration patience) {
  absl::MutexLock lock(&mutex_);
  mutex_.AwaitWithTimeout(absl::Condition(&is_over_), patience);
  return grant_;
}

void GrantAhead::Run() {
  while (true) {
    grpc::ClientContext context;
    messages::CallFacts facts = tracer_->Begin("NextGrant", context);
    facts.life = wire::LifeFromProto(request_);
    facts.round = round();
    if (!life_secret_.empty()) context.AddMetadata(wire::kLifeSecretKey, life_secret_);
    context.set_deadline(std::chrono::system_clock::now() + absl::ToChronoMilliseconds(timeout_));
    {
      absl::MutexLock lock(&mutex_);
      if (is_over_) return;
      call_in_progress_ = &context;
    }
    v1::Grant grant;
    const grpc::Status status = stub_->NextGrant(&context, request_, &grant);
    if (status.ok() && HasRound(grant)) facts.round = Round(grant.round());
    tracer_->End(facts, context, wire::FromGrpcStatus(status));
    absl::MutexLock lock(&mutex_);
    call_in_progress_ = nullptr;
    if (status.ok() && grant.kind() == v1::Grant::KIND_WAIT) continue;
    if (status.ok() && !is_over_) grant_ = std::move(grant);
    is_over_ = true;
    return;
  }
}

}  // namespace lodestar::client

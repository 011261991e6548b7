#include "worker/client/call_tracer.h"

#include "proto/bulk_options.h"

namespace lodestar {
namespace {

// Servers of an earlier release give nothing back.
bool IsInLogOfServer(const grpc::ClientContext& context) {
  return context.GetServerTrailingMetadata().count(kRequestIdKey) > 0;
}

}  // namespace

CallFacts CallTracer::Begin(absl::string_view call, grpc::ClientContext& context) {
  CallFacts facts;
  facts.call = std::string(call);
  facts.request = ids_.Next();
  facts.name = name_;
  context.AddMetadata(kRequestIdKey, facts.request);
  return facts;
}

void CallTracer::End(const CallFacts& facts, const grpc::ClientContext& context,
                     const absl::Status& status) {
  const bool is_refusal = !status.ok() && IsInLogOfServer(context);
  bool is_new = false;
  {
    absl::MutexLock lock(&mutex_);
    if (status.ok()) last_.erase(facts.call);
    if (is_refusal) {
      absl::Status& last = last_[facts.call];
      is_new = last != status;
      last = status;
    }
  }
  is_new ? log_.Note(facts, status) : log_.NoteQuietly(facts, status);
}

}  // namespace lodestar

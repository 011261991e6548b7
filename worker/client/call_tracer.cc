// SPDX-License-Identifier: Apache-2.0

#include "worker/client/call_tracer.h"

#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_replace.h"
#include "proto/bulk_options.h"

namespace lodestar::client {
namespace {

// Returns true if the server has written the call's id to its log. Servers of an earlier release do
// not know ids.
bool IsInLogOfServer(const grpc::ClientContext& context) {
  return context.GetServerTrailingMetadata().count(wire::kRequestIdKey) > 0;
}

// Returns the status as text without its numbers. Two refusals are the same if these texts are
// equal.
std::string WordsOf(const absl::Status& status) {
  std::string words = status.ToString(absl::StatusToStringMode::kWithNoExtraData);
  std::erase_if(words, [](char c) { return absl::ascii_isdigit(c) || c == '.'; });
  // The unit may differ too: "1ms ago" may become "1.2s ago" the next time.
  return absl::StrReplaceAll(words, {{"ms ago", "s ago"}});
}

}  // namespace

messages::CallFacts CallTracer::Begin(absl::string_view call, grpc::ClientContext& context) {
  messages::CallFacts facts;
  facts.call = std::string(call);
  facts.request = ids_.Next();
  facts.name = name_;
  context.AddMetadata(wire::kRequestIdKey, facts.request);
  return facts;
}

void CallTracer::End(const messages::CallFacts& facts, const grpc::ClientContext& context,
                     const absl::Status& status) {
  const bool is_refusal = !status.ok() && IsInLogOfServer(context);
  bool is_new = false;
  {
    absl::MutexLock lock(&mutex_);
    if (status.ok()) last_.erase(facts.call);
    if (is_refusal) {
      std::string words = WordsOf(status);
      std::string& last = last_[facts.call];
      is_new = last != words;
      last = std::move(words);
    }
  }
  is_new ? log_.Note(facts, status) : log_.NoteQuietly(facts, status);
}

}  // namespace lodestar::client

// SPDX-License-Identifier: Apache-2.0

#include "worker/client/call_watchdog.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <random>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/parameter_service.grpc.pb.h"

namespace lodestar::client {
namespace {

// Returns a random number, so that different workers and lives use different numbers.
uint64_t RandomNumber() {
  std::random_device device;
  return uint64_t{device()} << 32 | device();
}

std::chrono::system_clock::time_point After(absl::Duration duration) {
  return std::chrono::system_clock::now() + absl::ToChronoMilliseconds(duration);
}

}  // namespace

struct CallWatchdog::Question {
  int stream = 0;
  std::unique_ptr<v1::ParameterService::Stub> stub;
  grpc::ClientContext context;
  v1::DescribeCallsRequest request;
  v1::DescribeCallsReply reply;
  grpc::Status status;
  std::unique_ptr<grpc::ClientAsyncResponseReader<v1::DescribeCallsReply>> reader;
};

CallWatchdog::CallWatchdog(absl::Duration patience, size_t chunk_bytes, ChannelOf channel_of,
                           OnStandstill on_standstill)
    : least_patience_(patience),
      chunk_bytes_(chunk_bytes),
      channel_of_(std::move(channel_of)),
      on_standstill_(std::move(on_standstill)),
      last_number_(RandomNumber()),
      thread_([this] { Run(); }) {}

CallWatchdog::~CallWatchdog() {
  {
    absl::MutexLock lock(&mutex_);
    is_over_ = true;
    for (const auto& question : questions_) question->context.TryCancel();
    answers_.Shutdown();
  }
  thread_.join();
}

uint64_t CallWatchdog::NewNumber() {
  absl::MutexLock lock(&mutex_);
  return ++last_number_;
}

size_t CallWatchdog::ChunkBytes(int stream, bool is_push) {
  absl::MutexLock lock(&mutex_);
  return PaceOf(stream, is_push).chunk_bytes();
}

Pace& CallWatchdog::PaceOf(int stream, bool is_push) {
  return paces_.try_emplace({stream, is_push}, least_patience_, chunk_bytes_).first->second;
}

void CallWatchdog::Watch(uint64_t number, int stream, const std::shared_ptr<WatchedCall>& call) {
  const OwnCall own = call->Look();
  absl::MutexLock lock(&mutex_);
  Pace& pace = PaceOf(stream, own.is_push);
  entries_.push_back({number, stream, call, &pace, pace.has_small_chunks(),
                      CallWatch(clock_.Now(), pace.patience(), still_.ReachOf(stream))});
}

void CallWatchdog::Forget(uint64_t number, const absl::Status& status) {
  absl::MutexLock lock(&mutex_);
  const auto entry = std::find_if(entries_.begin(), entries_.end(),
                                  [number](const Entry& each) { return each.number == number; });
  if (entry == entries_.end()) return;
  if (status.ok() || entry->watch.TakeProof()) still_.OnProof(entry->stream);
  if (status.ok()) {
    entry->pace->OnDone(entry->watch.longest_quiet());
  } else if (absl::IsUnavailable(status)) {
    still_.OnStill(entry->stream, entry->watch.good_at(), entry->watch.bytes());
  }
  entries_.erase(entry);
}

std::optional<std::pair<int, absl::Duration>> CallWatchdog::Standstill() {
  absl::MutexLock lock(&mutex_);
  const std::optional<std::pair<int, absl::Time>> first = still_.First();
  if (!first.has_value()) return std::nullopt;
  return std::pair(first->first, clock_.Now() - first->second);
}

void CallWatchdog::Run() {
  const absl::Duration pause = std::max(least_patience_ / 12, absl::Milliseconds(1));
  absl::Time next_look = clock_.Now() + pause;
  while (true) {
    void* tag = nullptr;
    bool ok = false;
    const absl::Duration rest = std::max(next_look - clock_.Now(), absl::ZeroDuration());
    switch (answers_.AsyncNext(&tag, &ok, After(rest))) {
      case grpc::CompletionQueue::SHUTDOWN:
        return;
      case grpc::CompletionQueue::GOT_EVENT:
        TakeAnswer(static_cast<Question*>(tag), ok);
        break;
      case grpc::CompletionQueue::TIMEOUT:
        LookAtAll();
        next_look = clock_.Now() + pause;
        break;
    }
  }
}

void CallWatchdog::LookAtAll() {
  // Look() is called without the lock, because a call may end at that time, and its end takes the
  // lock.
  std::vector<std::pair<uint64_t, std::shared_ptr<WatchedCall>>> calls;
  {
    absl::MutexLock lock(&mutex_);
    for (const Entry& entry : entries_) {
      if (auto call = entry.call.lock()) calls.emplace_back(entry.number, std::move(call));
    }
  }
  std::map<uint64_t, OwnCall> own;
  for (const auto& [number, call] : calls) own[number] = call->Look();
  std::map<int, std::vector<uint64_t>> questions;
  std::map<uint64_t, absl::Status> ended;
  std::set<int> streams;
  std::set<Pace*> paces;
  {
    absl::MutexLock lock(&mutex_);
    if (is_over_) return;
    for (Entry& entry : entries_) {
      const auto known = own.find(entry.number);
      if (known == own.end()) continue;
      const CallWatch::Verdict verdict = entry.watch.Check(clock_.Now(), known->second);
      if (entry.watch.TakeProof()) still_.OnProof(entry.stream);
      switch (verdict) {
        case CallWatch::Verdict::kFine:
          break;
        case CallWatch::Verdict::kAsk:
          questions[entry.stream].push_back(entry.number);
          break;
        case CallWatch::Verdict::kEnd:
          streams.insert(entry.stream);
          paces.insert(entry.pace);
          still_.OnStill(entry.stream, entry.watch.good_at(), entry.watch.bytes(),
                         entry.has_small_chunks && !entry.watch.has_proved());
          ended[entry.number] = absl::UnavailableError(absl::StrCat(
              "no data has moved for ", absl::FormatDuration(entry.watch.patience()),
              ", and the server does not know this call, so the network lost data; the worker "
              "makes the call again"));
          break;
      }
    }
    // All calls of this stream use the same connection, which is ended below. So they are ended
    // too.
    for (const Entry& entry : entries_) {
      if (!streams.contains(entry.stream)) continue;
      ended.try_emplace(
          entry.number,
          absl::UnavailableError(
              "another call on the same connection moved no data, so the worker closed the "
              "connection and opens a new one"));
    }
    std::erase_if(entries_, [&](const Entry& entry) { return ended.contains(entry.number); });
    for (Pace* const pace : paces) pace->OnEnded();
    for (const auto& question : questions_) {
      if (streams.contains(question->stream)) question->context.TryCancel();
    }
    for (const auto& [stream, numbers] : questions) AskLocked(stream, numbers);
  }
  std::vector<std::function<void()>> old_connections;
  for (const int stream : streams) old_connections.push_back(on_standstill_(stream));
  for (const auto& [number, call] : calls) {
    if (const auto found = ended.find(number); found != ended.end()) call->End(found->second);
  }
  for (const std::function<void()>& end : old_connections) end();
}

void CallWatchdog::AskLocked(int stream, const std::vector<uint64_t>& numbers) {
  for (const auto& question : questions_) {
    if (question->stream == stream) return;
  }
  auto question = std::make_unique<Question>();
  question->stream = stream;
  question->stub = v1::ParameterService::NewStub(channel_of_(stream));
  for (const uint64_t number : numbers) question->request.add_calls(number);
  question->context.set_deadline(
      After(std::max(PaceOf(stream, true).patience(), PaceOf(stream, false).patience())));
  question->reader =
      question->stub->AsyncDescribeCalls(&question->context, question->request, &answers_);
  question->reader->Finish(&question->reply, &question->status, question.get());
  questions_.push_back(std::move(question));
}

void CallWatchdog::TakeAnswer(Question* question, bool ok) {
  // `taken` is declared first, so that it is destroyed after the lock is released.
  std::unique_ptr<Question> taken;
  absl::MutexLock lock(&mutex_);
  const auto place = std::find_if(questions_.begin(), questions_.end(),
                                  [question](const auto& each) { return each.get() == question; });
  taken = std::move(*place);
  questions_.erase(place);
  if (!ok || !taken->status.ok()) return;
  const int num_answers = std::min(taken->request.calls_size(), taken->reply.calls_size());
  for (Entry& entry : entries_) {
    for (int i = 0; i < num_answers; ++i) {
      if (taken->request.calls(i) != entry.number) continue;
      const v1::CallState& state = taken->reply.calls(i);
      entry.watch.OnAnswer(clock_.Now(), {.is_held = state.phase() == v1::CallState::PHASE_HELD,
                                          .bytes = state.bytes()});
    }
  }
}

}  // namespace lodestar::client

// SPDX-License-Identifier: Apache-2.0

#include "tests/simulation/transfer.h"

#include <algorithm>
#include <utility>

namespace lodestar::simulation {
namespace {

// The value is that of proto/bulk_options.h. Here a message has a whole bucket, but calls are paced
// by chunks.
constexpr size_t kChunkBytes = size_t{1} << 20;

}  // namespace

SimulatedServer* Transfer::ServerOf(size_t shard) const {
  return cluster_->ServerAt(static_cast<int>(shard), paths_->addresses[shard]);
}

size_t Transfer::Begin(size_t shard, bool is_push,
                       absl::AnyInvocable<void(std::shared_ptr<Stream>, uint64_t)> accept) {
  const size_t index = calls_.size();
  World& world = *cluster_->world;
  const uint64_t number = world.chance()();
  SimulatedServer* const server = ServerOf(shard);
  const int path = static_cast<int>(shard);
  client::Pace& pace =
      paths_->paces.try_emplace({path, is_push}, patience_, kChunkBytes).first->second;
  calls_.push_back({number,
                    server,
                    path,
                    nullptr,
                    &pace,
                    pace.has_small_chunks(),
                    client::CallWatch(world.Now(), pace.patience(), paths_->still.ReachOf(path)),
                    {},
                    false});
  calls_.back().own.is_push = is_push;
  calls_.back().stream = cluster_->network->Open(
      *worker_, server->process(), Lane::kBulk,
      [accept = std::move(accept), number, server,
       dialled = paths_->addresses[shard]](std::shared_ptr<Stream> stream) mutable {
        if (server->address() != dialled) {
          return stream->Close(Stream::kServer,
                               absl::UnavailableError("nobody listens at this address"));
        }
        accept(std::move(stream), number);
      });
  calls_.back().stream->OnBroken(Stream::kClient,
                                 [self = shared_from_this(), index](const absl::Status& status) {
                                   self->OnCallEnded(index, status);
                                 });
  if (index == 0) worker_->After(patience_ / 6, [self = shared_from_this()] { self->Look(); });
  return index;
}

void Transfer::Push(const std::vector<std::vector<PushedBucket>>& by_shard,
                    std::function<void(const client::PushResult&)> on_result) {
  for (size_t shard = 0; shard < by_shard.size(); ++shard) {
    SimulatedServer* const server = ServerOf(shard);
    const size_t index = calls_.size();
    const auto accept = [self = shared_from_this(), server, index, on_result](
                            const std::shared_ptr<Stream>& stream, uint64_t number) {
      server->BeginPush(number, stream,
                        [self, index, on_result,
                         raw = stream.get()](const absl::StatusOr<client::PushResult>& result) {
                          if (!result.ok()) return raw->Close(Stream::kServer, result.status());
                          raw->Send(Stream::kServer, [self, index, on_result, result] {
                            if (self->done_ == nullptr) return;
                            on_result(*result);
                            self->OnCallEnded(index, absl::OkStatus());
                          });
                        });
    };
    Begin(shard, /*is_push=*/true, accept);
    const std::shared_ptr<Stream> stream = calls_[index].stream;
    for (const PushedBucket& bucket : by_shard[shard]) {
      calls_[index].own.moved += bucket.bytes->size();
      stream->Send(Stream::kClient, [server, number = calls_[index].number, bucket] {
        server->TakeBucket(number, bucket);
      });
    }
    stream->Send(Stream::kClient,
                 [server, number = calls_[index].number] { server->EndPush(number); });
  }
}

void Transfer::Pull(const std::vector<PullOrder>& by_shard,
                    std::function<void(const DeliveredBucket&)> on_bucket) {
  bool has_calls = false;
  for (size_t shard = 0; shard < by_shard.size(); ++shard) {
    const PullOrder& order = by_shard[shard];
    if (order.buckets.empty()) continue;
    has_calls = true;
    SimulatedServer* const server = ServerOf(shard);
    const size_t index = calls_.size();
    Begin(shard, /*is_push=*/false,
          [self = shared_from_this(), server, index, order, on_bucket](
              const std::shared_ptr<Stream>& stream, uint64_t number) {
            server->Pull(
                number, stream, order,
                [self, index, on_bucket, raw = stream.get()](DeliveredBucket delivered) {
                  raw->Send(Stream::kServer,
                            [self, index, on_bucket, delivered = std::move(delivered)] {
                              if (self->done_ == nullptr) return;
                              client::OwnCall& own = self->calls_[index].own;
                              own.received += delivered.elements.size() * sizeof(float);
                              for (const auto& change : delivered.changes) {
                                own.received += change.size();
                              }
                              own.moved = own.received;
                              on_bucket(delivered);
                            });
                },
                [self, index, raw = stream.get()](const absl::Status& status) {
                  if (!status.ok()) return raw->Close(Stream::kServer, status);
                  raw->Send(Stream::kServer,
                            [self, index] { self->OnCallEnded(index, absl::OkStatus()); });
                });
          });
  }
  if (!has_calls) End(absl::OkStatus());
}

void Transfer::TryPaths() {
  for (size_t shard = 0; shard < cluster_->servers.size(); ++shard) {
    SimulatedServer* const server = ServerOf(shard);
    const size_t index = calls_.size();
    Begin(shard, /*is_push=*/false,
          [self = shared_from_this(), server, index](const std::shared_ptr<Stream>& stream,
                                                     uint64_t) {
            const absl::Status status = server->TryPath();
            if (!status.ok()) return stream->Close(Stream::kServer, status);
            stream->Send(Stream::kServer,
                         [self, index] { self->OnCallEnded(index, absl::OkStatus()); });
          });
  }
}

void Transfer::OnCallEnded(size_t index, const absl::Status& status) {
  Call& call = calls_[index];
  if (done_ == nullptr || call.is_over) return;
  call.is_over = true;
  if (status.ok() || call.watch.TakeProof()) paths_->still.OnProof(call.shard);
  if (status.ok()) {
    call.pace->OnDone(call.watch.longest_quiet());
  } else if (absl::IsUnavailable(status)) {
    paths_->still.OnStill(call.shard, call.watch.good_at(), call.watch.bytes());
  }
  if (!status.ok()) return End(status);
  call.stream->Close(Stream::kClient, absl::OkStatus());
  const bool is_complete =
      std::all_of(calls_.begin(), calls_.end(), [](const Call& one) { return one.is_over; });
  if (is_complete) End(absl::OkStatus());
}

void Transfer::Look() {
  if (done_ == nullptr) return;
  for (size_t index = 0; index < calls_.size(); ++index) {
    Call& call = calls_[index];
    if (call.is_over) continue;
    const client::CallWatch::Verdict verdict = call.watch.Check(cluster_->world->Now(), call.own);
    if (call.watch.TakeProof()) paths_->still.OnProof(call.shard);
    switch (verdict) {
      case client::CallWatch::Verdict::kFine:
        break;
      case client::CallWatch::Verdict::kAsk:
        Ask(index);
        break;
      case client::CallWatch::Verdict::kEnd:
        paths_->still.OnStill(call.shard, call.watch.good_at(), call.watch.bytes(),
                              call.has_small_chunks && !call.watch.has_proved());
        call.pace->OnEnded();
        return End(absl::UnavailableError("nothing moves, and the server does not say why"));
    }
  }
  worker_->After(patience_ / 6, [self = shared_from_this()] { self->Look(); });
}

void Transfer::Ask(size_t index) {
  SimulatedServer* const server = calls_[index].server;
  cluster_->network->Call(
      *worker_, server->process(), Lane::kBulk, patience_,
      [self = shared_from_this(), server, index,
       number = calls_[index].number](const Responder& responder) {
        responder.Reply([self, index, served = server->Describe(number)] {
          if (self->done_ == nullptr || !served.has_value()) return;
          self->calls_[index].watch.OnAnswer(self->cluster_->world->Now(), *served);
        });
      },
      [](const absl::Status&) {});
}

void Transfer::End(const absl::Status& status) {
  const Done done = std::exchange(done_, nullptr);
  if (done == nullptr) return;
  for (Call& call : calls_) {
    if (!std::exchange(call.is_over, true)) {
      call.stream->Close(Stream::kClient, absl::CancelledError("given up"));
    }
  }
  // This must not run inside the call that has caused it.
  worker_->After(absl::ZeroDuration(), [done, status] { done(status); });
}

}  // namespace lodestar::simulation

// SPDX-License-Identifier: Apache-2.0

#include "tests/simulation/network.h"

#include <algorithm>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"

namespace lodestar::simulation {
namespace {

// Interval at which deadlines are checked.
constexpr absl::Duration kDeadlineTick = absl::Milliseconds(50);

constexpr char kClosedByPeer[] = "closed by peer";

absl::Status Gone(const Process& process) {
  return absl::UnavailableError(absl::StrCat("the connection to ", process.name(), " is closed"));
}

absl::Status Closed(const Process& process) {
  absl::Status closed = Gone(process);
  closed.SetPayload(kClosedByPeer, absl::Cord());
  return closed;
}

}  // namespace

bool IsClosedByPeer(const absl::Status& end) { return end.GetPayload(kClosedByPeer).has_value(); }

struct Responder::Shared {
  ~Shared() {
    if (is_answered || !call->is_open_) return;
    // The responder was dropped without an answer, so the connection counts as closed. The caller
    // learns of it a little later.
    network->world_->After(network->longest_delay_, [network = network, call = call] {
      network->Fail(call, Gone(*call->callee_));
    });
  }

  Network* network;
  std::shared_ptr<UnaryCall> call;
  bool is_answered = false;
};

void Responder::Reply(World::Callback arrive) const {
  shared_->is_answered = true;
  // If the answer is lost, the connection is lost, too.
  Responder lost;
  lost.shared_ = std::make_shared<Shared>();
  lost.shared_->network = shared_->network;
  lost.shared_->call = shared_->call;
  UnaryCall& call = *shared_->call;
  shared_->network->Send(*call.callee_, *call.caller_, call.lane_,
                         [lost, arrive = std::move(arrive)]() mutable {
                           lost.shared_->is_answered = true;
                           UnaryCall& call = *lost.shared_->call;
                           if (!call.is_open_ || call.caller_->life() != call.caller_life_) return;
                           call.is_open_ = false;
                           arrive();
                         });
}

void Stream::Send(Side from, World::Callback arrive) {
  if (!is_open_) return;
  const Side to = from == kClient ? kServer : kClient;
  World& world = *network_->world_;
  End& sender = ends_[from];
  if (network_->Loses(*sender.process, *ends_[to].process, lane_)) return;
  const absl::Time arrival =
      std::max(sender.last_arrival, network_->Arrival(*sender.process, *ends_[to].process, lane_));
  sender.last_arrival = arrival;
  world.After(arrival - world.Now(),
              [self = shared_from_this(), to, arrive = std::move(arrive)]() mutable {
                if (!self->is_open_) return;
                End& receiver = self->ends_[to];
                receiver.process->Take(receiver.life, [self, arrive = std::move(arrive)]() mutable {
                  if (self->is_open_) arrive();
                });
              });
}

void Stream::Close(Side side, const absl::Status& status) {
  ends_[side].broken = nullptr;
  const Side other = side == kClient ? kServer : kClient;
  Send(side, [self = shared_from_this(), other, status] {
    self->is_open_ = false;
    Broken broken = std::exchange(self->ends_[other].broken, nullptr);
    if (broken != nullptr) broken(status);
  });
}

void Stream::Break(const absl::Status& status) {
  if (!std::exchange(is_open_, false)) return;
  TellEnd(kClient, network_->longest_delay_, status);
  TellEnd(kServer, network_->longest_delay_, status);
}

void Stream::TellEnd(Side side, absl::Duration delay, const absl::Status& status) {
  End& end = ends_[side];
  const Process& other = *ends_[side == kClient ? kServer : kClient].process;
  World& world = *network_->world_;
  // If a side hears nothing at all, it must find out by itself, by its keepalive.
  const absl::Duration silence = network_->SilentUntil(other, *end.process, lane_) - world.Now();
  const bool is_dark = network_->dark_.contains(&other);
  if (is_dark || silence > absl::ZeroDuration()) {
    delay += is_dark ? Network::kKeepalive : std::min(silence, Network::kKeepalive);
    network_->held_up_until_ = std::max(network_->held_up_until_, world.Now() + delay);
  }
  world.After(delay, [self = shared_from_this(), side, status] {
    End& end = self->ends_[side];
    end.process->Take(end.life, [self, side, status] {
      Broken broken = std::exchange(self->ends_[side].broken, nullptr);
      if (broken != nullptr) broken(status);
    });
  });
}

Network::Network(World* world, absl::Duration longest_delay)
    : world_(world), longest_delay_(longest_delay) {
  world_->After(kDeadlineTick, [this] { LookAtDeadlines(); });
}

Network::Path& Network::PathOf(const Process& a, const Process& b, Lane lane) {
  return paths_[{std::min(&a, &b), std::max(&a, &b), lane}];
}

bool Network::Loses(const Process& from, const Process& to, Lane lane) const {
  const auto found = loses_until_.find({&from, &to, lane});
  return found != loses_until_.end() && world_->Now() < found->second;
}

absl::Time Network::SilentUntil(const Process& from, const Process& to, Lane lane) const {
  const auto found = silent_until_.find({&from, &to, lane});
  return found == silent_until_.end() ? absl::InfinitePast() : found->second;
}

absl::Time Network::Arrival(const Process& from, const Process& to, Lane lane) {
  const absl::Time now = world_->Now();
  const Path& path = PathOf(from, to, lane);
  const absl::Duration longest = now < path.slow_until ? path.slow_delay : longest_delay_;
  const absl::Time sent = std::max(now, SilentUntil(from, to, lane));
  const absl::Time arrival = sent + world_->chance().Between(absl::Microseconds(20), longest);
  if (arrival - now > longest_delay_) held_up_until_ = std::max(held_up_until_, arrival);
  return arrival;
}

void Network::Send(Process& from, Process& to, Lane lane, World::Callback arrive) {
  const Path& path = PathOf(from, to, lane);
  if (!from.is_alive() || world_->Now() < path.cut_until) return;
  if (Loses(from, to, lane)) return lost_.push_back(std::move(arrive));
  if (const auto dark = dark_.find(&to); dark != dark_.end()) {
    dark->second.push_back(std::move(arrive));
    return;
  }
  if (!to.is_alive()) return;
  world_->After(Arrival(from, to, lane) - world_->Now(),
                [this, from = &from, to = &to, lane, life = to.life(), epoch = path.epoch,
                 arrive = std::move(arrive)]() mutable {
                  if (PathOf(*from, *to, lane).epoch != epoch) return;
                  if (const auto dark = dark_.find(to); dark != dark_.end()) {
                    dark->second.push_back(std::move(arrive));
                    return;
                  }
                  to->Take(life, std::move(arrive));
                });
}

std::shared_ptr<UnaryCall> Network::Call(Process& caller, Process& callee, Lane lane,
                                         absl::Duration timeout,
                                         absl::AnyInvocable<void(Responder)> serve,
                                         UnaryCall::Failure failed) {
  auto call = std::make_shared<UnaryCall>();
  call->caller_ = &caller;
  call->callee_ = &callee;
  call->lane_ = lane;
  call->caller_life_ = caller.life();
  call->deadline_ = world_->Now() + timeout;
  call->failed_ = std::move(failed);
  calls_.push_back(call);
  Responder responder;
  responder.shared_ = std::make_shared<Responder::Shared>();
  responder.shared_->network = this;
  responder.shared_->call = call;
  Send(caller, callee, lane,
       [responder = std::move(responder), serve = std::move(serve)]() mutable {
         serve(std::move(responder));
       });
  return call;
}

void Network::Fail(const std::shared_ptr<UnaryCall>& call, const absl::Status& status) {
  if (!call->is_open_) return;
  call->caller_->Take(call->caller_life_, [call, status] {
    if (!std::exchange(call->is_open_, false)) return;
    call->failed_(status);
  });
}

void Network::LookAtDeadlines() {
  const absl::Time now = world_->Now();
  std::vector<std::shared_ptr<UnaryCall>> calls = std::move(calls_);
  calls_.clear();
  for (std::shared_ptr<UnaryCall>& call : calls) {
    const bool has_caller =
        call->caller_->is_alive() && call->caller_->life() == call->caller_life_;
    if (!call->is_open_ || !has_caller) continue;
    if (now < call->deadline_) {
      calls_.push_back(std::move(call));
      continue;
    }
    Fail(call, absl::DeadlineExceededError(
                   absl::StrCat(call->callee_->name(), " has not answered in time")));
  }
  world_->After(kDeadlineTick, [this] { LookAtDeadlines(); });
}

std::shared_ptr<Stream> Network::Open(Process& client, Process& server, Lane lane,
                                      absl::AnyInvocable<void(std::shared_ptr<Stream>)> accept) {
  auto stream = std::make_shared<Stream>();
  stream->network_ = this;
  stream->lane_ = lane;
  stream->ends_[Stream::kClient] = {&client, client.life(), absl::InfinitePast(), nullptr};
  stream->ends_[Stream::kServer] = {&server, server.life(), absl::InfinitePast(), nullptr};
  std::erase_if(streams_, [](const auto& other) { return !other->is_open_; });
  streams_.push_back(stream);
  if (!server.is_alive() || world_->Now() < PathOf(client, server, lane).cut_until) {
    // Break() reports the end a little later, so that the caller has time to call OnBroken() first.
    stream->Break(Gone(server));
  } else {
    stream->Send(Stream::kClient, [raw = stream.get(), accept = std::move(accept)]() mutable {
      accept(raw->shared_from_this());
    });
  }
  return stream;
}

void Network::BreakStreams(const Process& a, const Process* b, Lane lane,
                           const absl::Status& status) {
  const std::vector<std::shared_ptr<Stream>> streams = streams_;
  for (const std::shared_ptr<Stream>& stream : streams) {
    const Process* const client = stream->ends_[Stream::kClient].process;
    const Process* const server = stream->ends_[Stream::kServer].process;
    const bool is_meant = b == nullptr ? client == &a || server == &a
                                       : stream->lane_ == lane && ((client == &a && server == b) ||
                                                                   (client == b && server == &a));
    if (is_meant) stream->Break(status);
  }
}

void Network::OnEnded(const Process& process, bool with_machine) {
  if (with_machine) dark_[&process];
  BreakStreams(process, nullptr, Lane::kControl, with_machine ? Gone(process) : Closed(process));
}

void Network::OnBegun(const Process& process) { dark_.erase(&process); }

void Network::Cut(const Process& a, const Process& b, Lane lane, absl::Duration duration) {
  Path& path = PathOf(a, b, lane);
  ++path.epoch;
  path.cut_until = world_->Now() + duration;
  BreakStreams(a, &b, lane, absl::UnavailableError("the connection was reset"));
}

void Network::RestartProxy(const Process& a, const Process& b, absl::Duration duration) {
  for (const Lane lane : {Lane::kControl, Lane::kBulk}) {
    Path& path = PathOf(a, b, lane);
    ++path.epoch;
    path.cut_until = std::max(path.cut_until, world_->Now() + duration);
    BreakStreams(a, &b, lane, Closed(b));
  }
}

void Network::Silence(const Process& a, const Process& b, Lane lane, bool both_ways,
                      absl::Duration duration) {
  const absl::Time until = world_->Now() + duration;
  silent_until_[{&a, &b, lane}] = until;
  if (both_ways) silent_until_[{&b, &a, lane}] = until;
  if (duration < kKeepalive) return;
  world_->After(kKeepalive, [this, &a, &b, lane, until] {
    if (SilentUntil(a, b, lane) == until) {
      BreakStreams(a, &b, lane, absl::UnavailableError("the connection gives no sign of life"));
    }
  });
}

void Network::SlowDown(const Process& a, const Process& b, Lane lane, absl::Duration longest_delay,
                       absl::Duration duration) {
  Path& path = PathOf(a, b, lane);
  path.slow_delay = longest_delay;
  path.slow_until = world_->Now() + duration;
}

void Network::Lose(const Process& from, const Process& to, Lane lane, absl::Duration duration) {
  loses_until_[{&from, &to, lane}] = world_->Now() + duration;
}

void Network::Heal() {
  silent_until_.clear();
  loses_until_.clear();
  for (auto& [pair, path] : paths_) path.cut_until = path.slow_until = absl::InfinitePast();
}

}  // namespace lodestar::simulation

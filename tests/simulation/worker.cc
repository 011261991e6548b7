// SPDX-License-Identifier: Apache-2.0

#include "tests/simulation/worker.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "common/job/fragment_plan.h"
#include "common/messages/cluster_messages.h"
#include "common/messages/contribution.h"
#include "common/runtime/check.h"
#include "common/runtime/remedy.h"
#include "kernels/codec/encoded_vectors.h"
#include "proto/convert_cluster.h"

namespace lodestar::simulation {
namespace {

// These times have the values of worker/client/cluster_session.h and worker/trainer/retry.h.
constexpr absl::Duration kGrantTimeout = absl::Seconds(15);
constexpr absl::Duration kCallTimeout = absl::Seconds(10);
constexpr absl::Duration kFirstPause = absl::Milliseconds(50);
constexpr absl::Duration kLongestPause = absl::Seconds(1);
constexpr absl::Duration kHangLook = absl::Milliseconds(100);
constexpr absl::Duration kPatienceAhead = absl::Milliseconds(50);
constexpr absl::Duration kLookAhead = absl::Milliseconds(5);

messages::DatasetInfo Data() {
  return {.fingerprint = "whole numbers",
          .num_train_samples = 1000,
          .num_heldout_samples = 8,
          .tokens_per_sample = 1};
}

// Returns what is left of a message after its conversion to the wire and back.
template <typename Message>
absl::StatusOr<Message> AsReceived(const Message& message) {
  return wire::FromProto(wire::ToProto(message));
}

std::optional<messages::RoundReport> AsReceived(
    const std::optional<messages::RoundReport>& report) {
  return report.has_value() ? std::optional(*AsReceived(*report)) : std::nullopt;
}

// Returns a loss. It is a whole number, so that sums are exact in any order.
double LossOf(const messages::WorkerLife& life, Round round) {
  return static_cast<double>(
      Chance(life.incarnation.value() ^ static_cast<uint64_t>(round.value())).Below(1000));
}

}  // namespace

SimulatedWorker::SimulatedWorker(ClusterContext* cluster, Config config)
    : cluster_(cluster),
      config_(std::move(config)),
      own_process_(std::make_unique<Process>(cluster->world, config_.name)),
      process_(*own_process_),
      is_odd_(config_.is_odd) {}

SimulatedWorker::SimulatedWorker(ClusterContext* cluster, Config config, Host host)
    : cluster_(cluster),
      config_(std::move(config)),
      host_(std::move(host)),
      process_(*host_.process),
      is_odd_(config_.is_odd) {}

void SimulatedWorker::Start() {
  if (own_process_ != nullptr) {
    process_.Begin();
    cluster_->network->OnBegun(process_);
    process_.world().Tell(process_.name(), " starts");
  }
  exit_.reset();
  is_refused_for_weight_ = false;
  life_ = std::make_unique<Life>(config_);
  life_->instance_id = process_.world().chance()() | 1;
  cluster_->open_connections.insert(connection());
  Perform(life_->lifecycle.Start(now()));
}

void SimulatedWorker::Crash(bool with_machine) {
  process_.world().Tell(process_.name(), with_machine ? " loses power" : " ends");
  process_.End();
  cluster_->network->OnEnded(process_, with_machine);
  EndConnections(/*are_closed=*/!with_machine);
  if (!with_machine) TellCoordinatorOfMyEnd();
  life_.reset();
}

void SimulatedWorker::TellCoordinatorOfMyEnd() {
  World& world = process_.world();
  if (!life_->registration.has_value() || !world.chance().OneIn(2)) return;
  SimulatedServer* const server = cluster_->servers[0];
  const messages::WorkerLife life = life_->registration->life;
  world.After(absl::Milliseconds(world.chance().Below(200)),
              [server, life, server_life = server->process().life()] {
                server->process().Take(server_life,
                                       [server, life] { server->OnProcessEnded(life); });
              });
}

void SimulatedWorker::EndConnections(bool are_closed) {
  if (are_closed) cluster_->open_connections.erase(connection());
  ClusterContext::Connections* const mine = connections();
  if (mine == nullptr) return;
  mine->has_process_ended = true;
  mine->are_bulk_closed = are_closed;
}

ClusterContext::Connections* SimulatedWorker::connections() {
  if (life_ == nullptr || !life_->registration.has_value()) return nullptr;
  return &cluster_->connections[life_->registration->life.incarnation];
}

void SimulatedWorker::OnProxyRestart(bool is_alone) {
  ClusterContext::Connections* const mine = connections();
  if (mine == nullptr) return;
  mine->are_bulk_closed = true;
  if (is_alone) mine->closed_alone_at = now();
}

std::string SimulatedWorker::connection() const {
  return absl::StrCat(config_.name, "/", life_->instance_id);
}

void SimulatedWorker::RequestStop(const life::StopRequest& request) {
  process_.Take(process_.life(), [this, request] {
    if (life_ == nullptr) return;
    process_.world().Tell(config_.name, " is told to stop");
    Perform(life_->lifecycle.OnStopRequested(now(), request));
  });
}

void SimulatedWorker::Hang(absl::Duration duration) {
  process_.Take(process_.life(), [this, duration] {
    Chance& chance = process_.world().chance();
    life_->hangs_until = now() + duration;
    life_->hangs_before_push = chance.OneIn(2);
    life_->hangs_as = chance.OneIn(2) ? "compute" : "push";
  });
}

bool SimulatedWorker::is_hanging() const {
  return process_.is_alive() && life_ != nullptr && life_->is_hanging &&
         !life_->lifecycle.is_life_over();
}

void SimulatedWorker::GoOn(bool before_push, std::function<void()> then) {
  const bool hangs = before_push == life_->hangs_before_push && now() < life_->hangs_until &&
                     !life_->lifecycle.is_life_over();
  if (hangs != std::exchange(life_->is_hanging, hangs)) {
    process_.world().Tell(process_.name(), hangs ? " hangs, and says that it is at " : " goes on: ",
                          hangs ? life_->hangs_as : "it hangs no more");
  }
  if (!hangs) return then();
  life_->lifecycle.OnActivity(now(), life_->hangs_as);
  process_.After(kHangLook, [this, before_push, then] { GoOn(before_push, then); });
}

void SimulatedWorker::DamagePushes(absl::Duration duration) {
  pushes_are_damaged_until_ = now() + duration;
}

void SimulatedWorker::Exit(const absl::Status& status) {
  exit_ = status;
  if (own_process_ == nullptr) {
    process_.world().Tell(config_.name, " ends: ", status.ToString());
    StopHeartbeats();
    EndAhead();
    return host_.on_exit();
  }
  process_.world().Tell(process_.name(), " exits: ", status.ToString());
  process_.End();
  cluster_->network->OnEnded(process_, /*with_machine=*/false);
  EndConnections(/*are_closed=*/true);
  // Code that runs now may still use the old life_.
  process_.world().After(absl::ZeroDuration(), [life = std::shared_ptr<Life>(std::move(life_))] {});
}

life::LifeId SimulatedWorker::life_id() const {
  return {life_->registration->server_incarnation, life_->registration->life.incarnation};
}

void SimulatedWorker::Perform(const life::Lifecycle::Effects& effects) {
  for (const life::Lifecycle::Effect& effect : effects) {
    std::visit([this](const auto& what) { Perform(what); }, effect);
  }
  PlanWake();
}

void SimulatedWorker::PlanWake() {
  const absl::Time wake = life_->lifecycle.next_wake();
  if (wake == life_->wake_at) return;
  life_->wake_at = wake;
  if (wake == absl::InfiniteFuture()) return;
  process_.After(wake - now(), [this, wake] {
    if (life_->wake_at != wake) return;
    life_->wake_at = absl::InfiniteFuture();
    Perform(life_->lifecycle.OnTick(now()));
  });
}

void SimulatedWorker::Perform(const life::Lifecycle::Task& task) {
  life_->calls_are_cancelled = false;
  const int number = ++life_->task;
  process_.After(absl::ZeroDuration(), [this, number, task] {
    LODESTAR_CHECK(life_->task == number) << "a task was given before the last one was over";
    std::visit([this](const auto& one) { Do(one); }, task);
  });
}

void SimulatedWorker::Perform(const life::Lifecycle::CancelCalls&) {
  life_->calls_are_cancelled = true;
  if (life_->call == nullptr) return;
  std::exchange(life_->call, nullptr)->Cancel();
  process_.After(absl::ZeroDuration(), [failed = std::exchange(life_->call_failed, nullptr)] {
    failed(absl::CancelledError("the worker stops, or its life is over"));
  });
}

void SimulatedWorker::Perform(const life::Lifecycle::CancelTransfers&) {
  life_->transfers_are_cancelled = true;
  if (life_->transfer != nullptr) life_->transfer->Cancel();
}

void SimulatedWorker::Perform(const life::Lifecycle::Tell& tell) {
  process_.world().Tell(process_.name(), ": ", tell.text);
}

template <typename Answer>
void SimulatedWorker::CallCoordinator(
    absl::Duration timeout,
    std::function<void(SimulatedServer&, const SimulatedServer::Reply<Answer>&)> serve,
    std::function<void(const absl::StatusOr<Answer>&)> done) {
  const auto fail = [done](const absl::Status& status) { done(status); };
  if (life_->calls_are_cancelled) {
    process_.After(absl::ZeroDuration(),
                   [fail] { fail(absl::CancelledError("the worker stops")); });
    return;
  }
  life_->call_failed = fail;
  const auto finish = [this, done](const absl::StatusOr<Answer>& answer) {
    life_->call = nullptr;
    life_->call_failed = nullptr;
    done(answer);
  };
  SimulatedServer* const coordinator = cluster_->servers[0];
  life_->call = cluster_->network->Call(
      process_, coordinator->process(), Lane::kControl, timeout,
      [coordinator, serve, finish](const Responder& responder) {
        serve(*coordinator, [responder, finish](const absl::StatusOr<Answer>& answer) {
          responder.Reply([finish, answer] { finish(answer); });
        });
      },
      [finish](const absl::Status& status) { finish(absl::UnavailableError(status.message())); });
}

void SimulatedWorker::Do(const life::Lifecycle::Connect&) {
  StopHeartbeats();
  EndAhead();
  life_->transfer = nullptr;
  messages::RegisterCall call;
  call.name = config_.name;
  call.instance_id = life_->instance_id;
  call.device = "simulated";
  call.encodings = config_.encodings;
  call.process.acknowledged = life_->acknowledged;
  v1::RegisterRequest wire = wire::ToProto(call);
  wire.set_wire_version(config_.wire_version);
  CallCoordinator<messages::Registration>(
      kCallTimeout,
      [wire, peer = peer()](SimulatedServer& server,
                            const SimulatedServer::Reply<messages::Registration>& reply) {
        absl::StatusOr<messages::RegisterCall> call = wire::FromProto(wire);
        if (!call.ok()) return reply(call.status());
        call->peer = peer;
        server.Register(*call, reply);
      },
      [this](const absl::StatusOr<messages::Registration>& answer) {
        if (absl::IsAborted(answer.status())) {
          // The scenario never draws a loss of state that nothing can notice, so no worker may be
          // refused.
          cluster_->audit->Fail(process_.name(), " is refused: ", answer.status().message());
        }
        if (!answer.ok()) return Perform(life_->lifecycle.OnRegistered(now(), answer.status()));
        const absl::StatusOr<messages::Registration> received = AsReceived(*answer);
        if (!received.ok()) return Perform(life_->lifecycle.OnRegistered(now(), received.status()));
        life_->registration = *received;
        connections()->process = &process_;
        life_->paths = PathsOfLife();
        for (const messages::ServerAddress& server : received->servers()) {
          life_->paths.addresses.push_back(server.address);
        }
        life_->map_version = received->map->version;
        life_->transfers_are_cancelled = false;
        const Incarnation incarnation = received->life.incarnation;
        life_->without_samples = MayExtend() && Chance(Chance::Mix(incarnation.value())).OneIn(4);
        if (life_->without_samples) cluster_->audit->OnAsksWithoutSamples(incarnation);
        Perform(life_->lifecycle.OnRegistered(now(), life_id()));
      });
}

void SimulatedWorker::Do(const life::Lifecycle::Prepare&) {
  StartHeartbeats();
  const size_t num_buckets = life_->registration->map->buckets.size();
  const uint64_t servers = life_->registration->server_incarnation;
  if (std::exchange(life_->server_incarnation, servers) != servers) {
    life_->shadow.assign(num_buckets, {});
    life_->held.assign(num_buckets, std::nullopt);
    life_->residual.clear();
    for (const params::Bucket& bucket : life_->registration->map->buckets) {
      life_->residual.emplace_back(bucket.range.size(), 0.0f);
    }
  }
  const auto finish = [this](const absl::Status& prepared) {
    Perform(life_->lifecycle.OnPrepared(now(), prepared));
  };
  if (host_.computing != nullptr) {
    return host_.computing->Prepare(*life_->registration, finish);
  }
  const absl::Duration time =
      process_.world().chance().Between(absl::ZeroDuration(), config_.longest_step);
  process_.After(time, [finish] { finish(absl::OkStatus()); });
}

void SimulatedWorker::Do(const life::Lifecycle::TryPaths&) {
  connections()->are_bulk_closed = false;
  life_->transfer =
      std::make_shared<Transfer>(cluster_, &process_, 2 * life_->registration->heartbeat_interval,
                                 &life_->paths, [this](const absl::Status& status) {
                                   life_->transfer = nullptr;
                                   Perform(life_->lifecycle.OnPathsTried(now(), status));
                                 });
  if (life_->transfers_are_cancelled) return life_->transfer->Cancel();
  life_->transfer->TryPaths();
}

void SimulatedWorker::Do(const life::Lifecycle::Join&) {
  const messages::WorkerLife life = life_->registration->life;
  const messages::DatasetInfo data = host_.computing == nullptr ? Data() : host_.computing->data();
  CallCoordinator<ViewId>(
      kCallTimeout,
      [life, data, hash = life_->registration->map->layout.hash()](
          SimulatedServer& server, const SimulatedServer::Reply<ViewId>& reply) {
        server.Join(life, hash, *AsReceived(data), reply);
      },
      [this](const absl::StatusOr<ViewId>& answer) {
        Perform(life_->lifecycle.OnJoined(now(), answer.status()));
      });
}

void SimulatedWorker::AskAhead(const messages::RoundReport& report) {
  EndAhead();
  life_->ahead = std::make_shared<Ahead>(Ahead{.report = report});
  const auto on_answer = [this, ahead = life_->ahead](
                             const absl::StatusOr<coordinator::GrantAnswer>& answer) {
    const messages::Grant grant = answer.ok() ? *AsReceived(answer->OrWait()) : messages::Grant();
    if (answer.ok() && grant.kind == messages::Grant::Kind::kWait && ahead == life_->ahead) {
      return AskAhead(ahead->report);
    }
    ahead->is_over = true;
    if (answer.ok() && grant.kind != messages::Grant::Kind::kWait) ahead->grant = grant;
  };
  SimulatedServer* const coordinator = cluster_->servers[0];
  life_->ahead->call = cluster_->network->Call(
      process_, coordinator->process(), Lane::kControl, kGrantTimeout,
      [coordinator, life = life_->registration->life, report = *AsReceived(report),
       without_samples = life_->without_samples, on_answer](const Responder& responder) {
        coordinator->NextGrant(
            life, report, SimulatedServer::Asks::kAhead, without_samples,
            [responder, on_answer](const absl::StatusOr<coordinator::GrantAnswer>& answer) {
              responder.Reply([on_answer, answer] { on_answer(answer); });
            });
      },
      [on_answer](const absl::Status& status) { on_answer(status); });
}

void SimulatedWorker::EndAhead() {
  if (life_->ahead == nullptr) return;
  std::exchange(life_->ahead->call, nullptr)->Cancel();
  life_->ahead->is_over = true;
  life_->ahead = nullptr;
}

void SimulatedWorker::Do(const life::Lifecycle::AskForGrant& ask) {
  AwaitAhead(ask, now() + kPatienceAhead);
}

void SimulatedWorker::AwaitAhead(const life::Lifecycle::AskForGrant& ask, absl::Time deadline) {
  const std::shared_ptr<Ahead> ahead = life_->ahead;
  const bool is_for_it = ahead != nullptr && ask.report.has_value() && !ask.leaving &&
                         ahead->report.round == ask.report->round;
  if (!is_for_it || ahead->is_over || now() >= deadline || life_->calls_are_cancelled) {
    EndAhead();
    if (is_for_it && ahead->grant.has_value()) return TakeGrant(ask, *ahead->grant);
    return Ask(ask);
  }
  process_.After(kLookAhead, [this, ask, deadline] { AwaitAhead(ask, deadline); });
}

void SimulatedWorker::Ask(const life::Lifecycle::AskForGrant& ask) {
  const messages::WorkerLife life = life_->registration->life;
  CallCoordinator<coordinator::GrantAnswer>(
      kGrantTimeout,
      [life, report = AsReceived(ask.report),
       asks = ask.leaving ? SimulatedServer::Asks::kLeaving : SimulatedServer::Asks::kOnceDelivered,
       without_samples = life_->without_samples](
          SimulatedServer& server, const SimulatedServer::Reply<coordinator::GrantAnswer>& reply) {
        server.NextGrant(life, report, asks, without_samples, reply);
      },
      [this, ask](const absl::StatusOr<coordinator::GrantAnswer>& answer) {
        if (!answer.ok()) return Perform(life_->lifecycle.OnGrant(now(), answer.status()));
        TakeGrant(ask, AsReceived(answer->OrWait()));
      });
}

void SimulatedWorker::TakeGrant(const life::Lifecycle::AskForGrant& ask,
                                const absl::StatusOr<messages::Grant>& grant) {
  if (grant.ok() && grant->kind != messages::Grant::Kind::kWait && ask.report.has_value()) {
    const messages::Registration& registration = *life_->registration;
    life_->acknowledged = {.server_incarnation = registration.server_incarnation,
                           .life = registration.life.incarnation,
                           .round = ask.report->round};
  }
  Perform(life_->lifecycle.OnGrant(now(), grant));
}

void SimulatedWorker::Do(const life::Lifecycle::SayGoodbye& goodbye) {
  if (!life_->registration.has_value()) {
    return Perform(life_->lifecycle.OnLeft(now(), absl::OkStatus()));
  }
  const messages::WorkerLife life = life_->registration->life;
  CallCoordinator<bool>(
      kCallTimeout,
      [life, reason = goodbye.reason, report = AsReceived(goodbye.report)](
          SimulatedServer& server, const SimulatedServer::Reply<bool>& reply) {
        server.Leave(life, reason, report, reply);
      },
      [this](const absl::StatusOr<bool>& answer) {
        Perform(life_->lifecycle.OnLeft(now(), answer.status()));
      });
}

void SimulatedWorker::Do(const life::Lifecycle::Finish& finish) { Exit(finish.status); }

void SimulatedWorker::StartHeartbeats() {
  StopHeartbeats();
  life_->pace.emplace(life_->registration->heartbeat_interval, now());
  SendHeartbeat(life_->heartbeats);
}

void SimulatedWorker::StopHeartbeats() {
  ++life_->heartbeats;
  if (life_->heartbeat != nullptr) std::exchange(life_->heartbeat, nullptr)->Cancel();
  if (life_->held_call == nullptr) return;
  std::exchange(life_->held_call, nullptr)
      ->Close(Stream::kClient, absl::CancelledError("not any more"));
}

void SimulatedWorker::StayConnected() {
  SimulatedServer* const coordinator = cluster_->servers[0];
  life_->held_call =
      cluster_->network->Open(process_, coordinator->process(), Lane::kControl,
                              [coordinator, life = life_->registration->life,
                               peer = peer()](const std::shared_ptr<Stream>& stream) {
                                coordinator->StayConnected(life, peer, stream);
                              });
  life_->redial.OnHeld(now());
  life_->held_call->OnBroken(
      Stream::kClient, [this, held = life_->held_call.get()](const absl::Status& end) {
        if (life_->held_call.get() != held) return;
        life_->held_call = nullptr;
        if (absl::IsAborted(end)) return;  // the next heartbeat reports it
        ++life_->connection;
        life_->is_cut_off = true;
        StopHeartbeats();
        process_.After(life_->redial.OnFailed(now()), [this, series = life_->heartbeats] {
          if (series == life_->heartbeats) SendHeartbeat(series);
        });
      });
}

void SimulatedWorker::SendHeartbeat(int series) {
  life_->pace->OnSent(now());
  messages::HeartbeatCall call;
  call.life = life_->registration->life;
  if (!config_.tells_little) {
    call.activity = life_->lifecycle.activity();
    call.map_version = life_->map_version;
    const auto& acknowledged = life_->acknowledged;
    if (acknowledged.has_value() && acknowledged->life == call.life.incarnation) {
      call.acknowledged = acknowledged->round;
    }
  }
  if (const auto first = life_->paths.still.First(); first.has_value() && !config_.tells_little) {
    call.standstill = messages::Standstill{first->first, now() - first->second};
  }
  SimulatedServer* const coordinator = cluster_->servers[0];
  life_->heartbeat = cluster_->network->Call(
      process_, coordinator->process(), Lane::kControl, life_->pace->patience(),
      [this, series, coordinator, call, peer = peer()](const Responder& responder) {
        coordinator->Heartbeat(
            *AsReceived(call), peer,
            [this, series, responder](const absl::StatusOr<messages::HeartbeatAnswer>& answer) {
              responder.Reply([this, series, answer] { OnHeartbeat(series, answer); });
            });
      },
      [this, series](const absl::Status& status) { OnHeartbeat(series, status); });
}

void SimulatedWorker::OnHeartbeat(int series,
                                  const absl::StatusOr<messages::HeartbeatAnswer>& answer) {
  if (series != life_->heartbeats) return;
  const absl::Status& status = answer.status();
  if (absl::IsAborted(status)) {
    ++life_->heartbeats;
    return Perform(life_->lifecycle.OnLifeLost(now(), status));
  }
  if (status.ok()) {
    life_->pace->OnAnswered(now());
    life_->is_cut_off = false;
    if (life_->held_call == nullptr && cluster_->coordinator.ends_unconnected &&
        own_process_ != nullptr) {
      StayConnected();
    }
    const absl::StatusOr<messages::HeartbeatAnswer> received = AsReceived(*answer);
    if (received->servers.has_value()) {
      life_->map_version = received->servers->map_version;
      life_->paths.addresses = received->servers->addresses;
    }
    Perform(life_->lifecycle.OnHeartbeat(received->waiting_for));
  } else if (absl::IsDeadlineExceeded(status) && life_->pace->OnSilence(now()) &&
             life_->call != nullptr) {
    // The connection of the call is in doubt.
    std::exchange(life_->call, nullptr)->Cancel();
    std::exchange(life_->call_failed,
                  nullptr)(absl::UnavailableError("has not answered on this connection any more"));
  }
  absl::Duration pause = life_->pace->next() - now();
  if (life_->is_cut_off) pause = std::min(pause, life_->redial.OnFailed(now()));
  process_.After(pause, [this, series] {
    if (series == life_->heartbeats) SendHeartbeat(series);
  });
}

void SimulatedWorker::Do(const life::Lifecycle::CarryOut& order) {
  life_->grant = order.grant;
  life_->num_extra_samples = 0;
  life_->pause = kFirstPause;
  const bool is_made = life_->made.has_value() && life_->made->life == life_id() &&
                       life_->made->grant.round == order.grant.round &&
                       order.grant.kind == messages::Grant::Kind::kTrain;
  if (is_made) return BeginPush();
  life_->made.reset();
  const bool goes_on = life_->next_round == order.grant.round && life_->in_hand_of == life_id() &&
                       order.grant.kind == messages::Grant::Kind::kTrain;
  if (goes_on) {
    for (const uint32_t bucket : DueIn(order.grant.round + -1)) life_->pulled[bucket].reset();
    return BeginPull();
  }
  const size_t num_buckets = life_->registration->map->buckets.size();
  life_->pulled.assign(num_buckets, std::nullopt);
  life_->weights.assign(num_buckets, {});
  life_->next_round.reset();
  life_->in_hand.clear();
  BeginPull();
}

void SimulatedWorker::BeginPull() {
  life_->lifecycle.OnActivity(now(), "pull");
  PullMissing();
}

void SimulatedWorker::BeginPush() {
  life_->lifecycle.OnActivity(now(), "push");
  PushMade();
}

std::vector<uint32_t> SimulatedWorker::DueIn(Round round) const {
  return job::FragmentPlan(life_->registration->map->buckets, job().fragments).DueIn(round);
}

void SimulatedWorker::PullMissing() {
  const messages::ClusterMap& map = *life_->registration->map;
  std::vector<PullOrder> orders(map.servers.size());
  for (PullOrder& order : orders) {
    order.worker = life_->registration->life.worker;
    order.incarnation = life_->registration->life.incarnation;
    order.min_round = life_->grant->min_round;
    order.encoding = job().pull_encoding;
  }
  for (const params::Bucket& bucket : map.buckets) {
    if (life_->pulled[bucket.index].has_value()) continue;
    orders[bucket.shard].buckets.push_back(bucket.index);
    orders[bucket.shard].held.push_back(life_->held[bucket.index]);
  }
  connections()->are_bulk_closed = false;
  life_->transfer =
      std::make_shared<Transfer>(cluster_, &process_, 2 * life_->registration->heartbeat_interval,
                                 &life_->paths, [this](const absl::Status& status) {
                                   life_->transfer = nullptr;
                                   if (!status.ok())
                                     return TryAgain(status, &SimulatedWorker::PullMissing);
                                   life_->lifecycle.OnActivity(now(), "compute");
                                   Compute();
                                 });
  if (life_->transfers_are_cancelled) return life_->transfer->Cancel();
  life_->transfer->Pull(orders, [this](const DeliveredBucket& delivered) { OnBucket(delivered); });
}

void SimulatedWorker::OnBucket(const DeliveredBucket& delivered) {
  const uint32_t bucket = delivered.bucket;
  std::vector<float>& weights = life_->weights[bucket];
  const params::Encoding encoding = job().pull_encoding;
  if (encoding == params::Encoding::kFp32) {
    weights = delivered.elements;
  } else {
    std::vector<float>& shadow = life_->shadow[bucket];
    if (delivered.changes.empty() && !delivered.elements.empty()) shadow = delivered.elements;
    for (const std::vector<std::byte>& change : delivered.changes) {
      codec::AccumulateDecoded(encoding, change.data(), static_cast<int64_t>(shadow.size()), 1.0f,
                               shadow.data(), kernels::Accumulate::kAdd);
    }
    life_->held[bucket] = delivered.version;
    weights = shadow;
  }
  life_->pulled[bucket] = delivered.version;
  cluster_->audit->OnPulled(
      {life_->registration->server_incarnation, life_->registration->life.incarnation, bucket,
       delivered.version, life_->grant->min_round},
      weights, encoding != params::Encoding::kFp32);
}

void SimulatedWorker::Compute() {
  if (host_.computing != nullptr) {
    return host_.computing->CarryOut(
        *life_->grant, AllWeights(),
        [this, since = now()](const absl::StatusOr<Computing::Window>& window) {
          if (!window.ok()) return EndRound(window.status());
          life_->window = *window;
          life_->computed_for = now() - since;
          ContributeOrEvaluate();
        });
  }
  const absl::Duration time =
      process_.world().chance().Between(absl::Microseconds(100), config_.longest_step);
  life_->computed_for = time;
  process_.After(time, [this] { GoOn(/*before_push=*/true, [this] { MaybeExtend(); }); });
}

void SimulatedWorker::MaybeExtend() {
  const messages::Grant& grant = *life_->grant;
  if (config_.extends_grants && grant.kind == messages::Grant::Kind::kTrain) {
    Chance& chance = process_.world().chance();
    const bool may_extend = MayExtend();
    if (may_extend && !life_->lifecycle.is_life_over() && chance.OneIn(3)) return Extend();
    if (!may_extend && chance.OneIn(8)) AskForMoreInVain(grant.round);
  }
  ContributeOrEvaluate();
}

bool SimulatedWorker::MayExtend() const {
  return config_.extends_grants && !job::HasLocalSteps(job()) && cluster_->uplink == nullptr;
}

// Does what Worker::ExtendGrant() does.
void SimulatedWorker::Extend() {
  CallCoordinator<messages::Grant>(
      kCallTimeout,
      [life = life_->registration->life, round = life_->grant->round](
          SimulatedServer& server, const SimulatedServer::Reply<messages::Grant>& reply) {
        server.ExtendGrant(life, round, reply);
      },
      [this](const absl::StatusOr<messages::Grant>& answer) {
        if (!answer.ok()) return TryAgain(answer.status(), &SimulatedWorker::Extend);
        life_->num_extra_samples += AsReceived(*answer)->num_samples;
        Compute();
      });
}

void SimulatedWorker::AskForMoreInVain(Round round) {
  SimulatedServer* const coordinator = cluster_->servers[0];
  cluster_->network->Call(
      process_, coordinator->process(), Lane::kControl, kCallTimeout,
      [coordinator, life = life_->registration->life, round](const Responder& responder) {
        coordinator->ExtendGrant(life, round, [responder](const absl::StatusOr<messages::Grant>&) {
          responder.Reply([] {});
        });
      },
      [](const absl::Status&) {});
}

std::optional<int64_t> SimulatedWorker::Weight() const {
  if (config_.gives_weights == is_odd_) return std::nullopt;
  // The weight belongs to the contribution, however often that is made.
  Chance chance(Chance::Mix(life_->registration->life.incarnation.value() + 1) ^
                static_cast<uint64_t>(life_->grant->round.value()));
  if (chance.OneIn(32)) return messages::kMaxContributionWeight;
  return chance.OneIn(8) ? 0 : chance.Between(1, 9);
}

void SimulatedWorker::ContributeOrEvaluate() {
  if (life_->lifecycle.is_life_over()) {
    return EndRound(absl::AbortedError("this life ended while it computed"));
  }
  const messages::Grant& grant = *life_->grant;
  if (grant.kind == messages::Grant::Kind::kTrain) {
    MakeContribution();
    if (config_.asks_ahead && !job::DefersContributions(job()) && !life_->lifecycle.is_stopping()) {
      AskAhead(life_->made->report);
    }
    return BeginPush();
  }
  EndRound(EvaluationReport());
}

messages::RoundReport SimulatedWorker::EvaluationReport() const {
  if (life_->window.has_value()) return life_->window->report;
  messages::RoundReport report;
  report.round = life_->grant->round;
  if (life_->grant->num_heldout_samples == 0) return report;
  report.heldout_predictions = life_->grant->num_heldout_samples;
  report.heldout_loss_sum = LossOf(life_->registration->life, report.round);
  return report;
}

std::vector<float> SimulatedWorker::AllWeights() const {
  const messages::ClusterMap& map = *life_->registration->map;
  std::vector<float> all(map.layout.num_elements());
  for (const params::Bucket& bucket : map.buckets) {
    const std::vector<float>& weights = life_->weights[bucket.index];
    std::copy(weights.begin(), weights.end(), all.begin() + bucket.range.begin);
  }
  return all;
}

std::vector<float> SimulatedWorker::ValuesOf(const params::Bucket& bucket,
                                             messages::ContributionKind kind,
                                             Chance& numbers) const {
  const int64_t n = bucket.range.size();
  std::vector<float> values(n);
  const bool is_of_weights = kind == messages::ContributionKind::kWeights;
  for (int64_t e = 0; e < n; ++e) {
    if (life_->window.has_value()) {
      const int64_t element = bucket.range.begin + e;
      const float end = life_->window->end[element];
      values[e] = is_of_weights ? end : life_->window->start[element] - end;
      continue;
    }
    values[e] = static_cast<float>(numbers.Between(-4, 4));
    if (is_of_weights) values[e] += life_->weights[bucket.index][e];
  }
  return values;
}

void SimulatedWorker::MakeContribution() {
  const messages::Grant& grant = *life_->grant;
  const messages::Registration& registration = *life_->registration;
  const params::Encoding encoding = job().push_encoding;
  Made made = {.life = life_id(),
               .grant = grant,
               .report = {},
               .by_shard = {},
               .values = {},
               .base_versions = {}};
  if (life_->window.has_value()) {
    made.report = life_->window->report;
  } else {
    made.report.round = grant.round;
    made.report.num_samples =
        (life_->without_samples ? 0 : grant.num_samples) + life_->num_extra_samples;
    made.report.heldout_predictions = grant.num_heldout_samples;
  }
  made.report.compute = life_->computed_for;
  shard::ContributionKey key = {.worker = registration.life.worker,
                                .incarnation = registration.life.incarnation,
                                .round = grant.round,
                                .base_version = Version(0),
                                .kind = messages::RoundContributionKind(job()),
                                .encoding = encoding,
                                .weight = Weight()};
  if (job::DefersContributions(job())) {
    TakeInHand(made, key);
  } else if (job::HasLocalSteps(job())) {
    // After a request to stop, the remaining steps are left out.
    if (life_->lifecycle.is_stopping() && !life_->window.has_value()) {
      made.report.num_samples /= grant.local_steps;
    }
    key.num_samples = made.report.num_samples;
  }
  if (!life_->window.has_value()) {
    made.report.num_predictions = made.report.num_samples;
    if (made.report.num_predictions > 0) {
      made.report.loss_sum = LossOf(registration.life, grant.round);
    }
  }
  made.report.base_version = *life_->pulled[0];
  made.by_shard.resize(registration.map->servers.size());
  made.values.resize(registration.map->buckets.size());
  Chance numbers(Chance::Mix(registration.life.incarnation.value()) ^
                 static_cast<uint64_t>(grant.round.value()) ^
                 static_cast<uint64_t>(life_->num_computed++) << 40);
  for (const uint32_t index : DueIn(grant.round)) {
    const params::Bucket& bucket = registration.map->buckets[index];
    key.base_version = *life_->pulled[bucket.index];
    if (key.is_skipped()) {
      made.by_shard[bucket.shard].push_back(
          {key, bucket.index, std::make_shared<std::vector<std::byte>>(), false});
      continue;
    }
    const int64_t n = bucket.range.size();
    std::vector<float> values = ValuesOf(bucket, key.kind, numbers);
    auto bytes = std::make_shared<std::vector<std::byte>>(params::EncodedBytes(encoding, n));
    std::vector<float> decoded = values;
    if (encoding == params::Encoding::kFp32) {
      std::memcpy(bytes->data(), values.data(), bytes->size());
    } else {
      codec::EncodeWithResidual(
          encoding, values.data(), 1.0f,
          job().error_feedback ? life_->residual[bucket.index].data() : nullptr, n,
          {.key = registration.life.worker.value(),
           .stream = static_cast<uint64_t>(grant.round.value()),
           .first_element = bucket.range.begin},
          bytes->data());
      codec::AccumulateDecoded(encoding, bytes->data(), n, 1.0f, decoded.data(),
                               kernels::Accumulate::kSet);
    }
    cluster_->audit->OnMade(registration.server_incarnation, registration.life.incarnation,
                            grant.round, bucket.index, std::move(decoded), key.num_samples,
                            key.weight);
    made.by_shard[bucket.shard].push_back({key, bucket.index, bytes, false});
    made.values[index] = std::move(values);
  }
  life_->made = std::move(made);
}

void SimulatedWorker::TakeInHand(Made& made, shard::ContributionKey& key) {
  const messages::Grant& grant = *life_->grant;
  std::deque<int64_t>& in_hand = life_->in_hand;
  const int64_t samples = std::accumulate(in_hand.begin(), in_hand.end(), int64_t{0});
  key.num_samples = samples > 0 ? samples : messages::kSkippedSamples;
  made.report.num_samples = in_hand.empty() ? 0 : in_hand.back();
  const bool computes = grant.num_samples > 0 && !life_->lifecycle.is_stopping();
  made.report.leaves_nothing_in_hand = !computes;
  if (!computes) return life_->next_round.reset();
  life_->next_round = grant.round + 1;
  life_->in_hand_of = life_id();
  in_hand.push_back(grant.num_samples);
  if (static_cast<int>(in_hand.size()) > job().fragments) in_hand.pop_front();
}

void SimulatedWorker::PushMade() {
  auto result = std::make_shared<client::PushResult>();
  connections()->are_bulk_closed = false;
  life_->transfer =
      std::make_shared<Transfer>(cluster_, &process_, 2 * life_->registration->heartbeat_interval,
                                 &life_->paths, [this, result](const absl::Status& status) {
                                   life_->transfer = nullptr;
                                   if (!status.ok())
                                     return TryAgain(status, &SimulatedWorker::PushMade);
                                   OnDelivered(*result);
                                 });
  if (life_->transfers_are_cancelled) return life_->transfer->Cancel();
  std::vector<std::vector<PushedBucket>> by_shard = life_->made->by_shard;
  if (now() < pushes_are_damaged_until_) {
    std::vector<PushedBucket>& some = by_shard[process_.world().chance().Below(by_shard.size())];
    if (!some.empty()) some[process_.world().chance().Below(some.size())].is_damaged = true;
  }
  life_->transfer->Push(by_shard, [result](const client::PushResult& part) {
    result->late.insert(result->late.end(), part.late.begin(), part.late.end());
  });
}

void SimulatedWorker::OnDelivered(const client::PushResult& result) {
  Made& made = *life_->made;
  cluster_->audit->OnDelivered(made.life.server_incarnation, made.life.incarnation,
                               made.grant.round, result.late);
  const params::Encoding encoding = job().push_encoding;
  if (encoding != params::Encoding::kFp32 && job().error_feedback) {
    for (const std::vector<PushedBucket>& buckets : made.by_shard) {
      for (const PushedBucket& pushed : buckets) {
        if (pushed.key.is_skipped()) continue;
        if (std::find(result.late.begin(), result.late.end(), pushed.bucket) != result.late.end()) {
          continue;
        }
        std::vector<float>& residual = life_->residual[pushed.bucket];
        codec::UpdateResidual(encoding, made.values[pushed.bucket].data(), 1.0f,
                              pushed.bytes->data(), static_cast<int64_t>(residual.size()),
                              static_cast<float>(job().feedback_decay), residual.data());
      }
    }
  }
  const messages::RoundReport report = made.report;
  life_->made.reset();
  GoOn(/*before_push=*/false, [this, report] { EndRound(report); });
}

void SimulatedWorker::TryAgain(const absl::Status& status, void (SimulatedWorker::*attempt)()) {
  if (RemedyFor(status) != Remedy::kRepeat) return EndRound(status);
  process_.world().Tell(process_.name(), ": ", life_->lifecycle.activity(), " of round ",
                        life_->grant->round.value(), " failed: ", status.message());
  process_.After(life_->pause, [this, attempt, task = life_->task] {
    if (life_->task == task) (this->*attempt)();
  });
  life_->pause = std::min(2 * life_->pause, kLongestPause);
}

void SimulatedWorker::EndRound(const absl::StatusOr<messages::RoundReport>& report) {
  const std::optional<messages::Grant> grant = std::exchange(life_->grant, std::nullopt);
  if (report.ok()) {
    if (config_.extends_grants && process_.world().chance().OneIn(8)) {
      AskForMoreInVain(grant->round);
    }
    const bool leaves_steps = grant->kind == messages::Grant::Kind::kTrain &&
                              job::DefersContributions(job()) && !report->leaves_nothing_in_hand;
    return Perform(life_->lifecycle.OnCarriedOut(now(), report, leaves_steps));
  }
  if (absl::IsFailedPrecondition(report.status()) && life_->made.has_value()) {
    cluster_->audit->OnWeightRefused(life_id().server_incarnation, life_id().incarnation,
                                     grant->round);
    is_odd_ = false;
    is_refused_for_weight_ = true;
  }
  // Does what RoundRunner::Run() does.
  const Remedy remedy = RemedyFor(report.status());
  if (remedy == Remedy::kRejoin || remedy == Remedy::kReconnect) {
    return Perform(life_->lifecycle.OnCarriedOut(now(), report));
  }
  life_->made.reset();
  Perform(life_->lifecycle.OnCarriedOut(now(), AsFinal(report.status())));
}

}  // namespace lodestar::simulation

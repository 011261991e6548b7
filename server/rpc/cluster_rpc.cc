// SPDX-License-Identifier: Apache-2.0

#include "server/rpc/cluster_rpc.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/logging/logging.h"
#include "common/net/host_port.h"
#include "common/process/version.h"
#include "common/runtime/peer_text.h"
#include "common/runtime/status_hints.h"
#include "common/runtime/status_macros.h"
#include "proto/convert_cluster.h"
#include "proto/message_checksum.h"
#include "proto/registration_scan.h"
#include "proto/status_mapping.h"
#include "proto/transport_security.h"
#include "server/limits/memory_bound.h"
#include "server/membership/membership_table.h"
#include "server/membership/registration_limit.h"
#include "server/rpc/access_policy.h"
#include "server/rpc/checkpoint_calls.h"
#include "server/rpc/life_secret.h"
#include "server/rpc/shard_convert.h"

namespace lodestar::rpc {
namespace {

constexpr absl::Duration kDefaultHold = absl::Seconds(10);
// Maximum time that Register waits for servers that load. Usually they are ready within moments.
// After this time the client is told why they are not ready.
constexpr absl::Duration kRegisterHold = absl::Seconds(3);
constexpr absl::Duration kMaxHold = absl::Minutes(1);
// Maximum number of registrations that are not answered yet, or whose clients have not read the
// answer: in all, and of one origin.
constexpr limits::OriginPlaces::Config kMaxHeldRegistrations = {.in_all = 1024, .of_origin = 256};
constexpr limits::OriginPlaces::Config kMaxHeldConnections = {.in_all = 16'384, .of_origin = 4096};
constexpr absl::Duration kPlacePause = absl::Seconds(1);
constexpr absl::Duration kMaxStopPatience = absl::Hours(24);
constexpr size_t kMaxReasonBytes = 1024;
// Maximum size of a hash that a worker reports.
constexpr size_t kMaxHashBytes = 64;

grpc::ServerUnaryReactor* Answer(grpc::CallbackServerContext* context, const absl::Status& status) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(wire::ToGrpcStatus(status));
  return reactor;
}

grpc::ServerUnaryReactor* Answer(grpc::CallbackServerContext* context, const CallTrace& trace,
                                 const absl::Status& status) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(trace.End(status));
  return reactor;
}

CoordinatorStrand::Delivery Finish(grpc::ServerUnaryReactor* reactor, const CallTrace& trace,
                                   const absl::Status& status) {
  return [reactor, trace, status](const absl::Status& kept) {
    reactor->Finish(trace.End(kept.ok() ? status : kept));
  };
}

absl::StatusOr<std::optional<messages::RoundReport>> ReportOf(bool has_report,
                                                              const v1::RoundReport& report) {
  if (!has_report) return std::nullopt;
  ASSIGN_OR_RETURN(messages::RoundReport result, wire::FromProto(report));
  return result;
}

absl::Status StoppingStatus() {
  return absl::UnavailableError("the server is stopping; connect again when it is back");
}

void Serialize(const google::protobuf::MessageLite& message, grpc::ByteBuffer* bytes) {
  const grpc::Slice slice(message.SerializeAsString());
  *bytes = grpc::ByteBuffer(&slice, 1);
}

// A PlacedCall is a call that holds a place of OriginPlaces until the client has read the answer or
// is gone.
class PlacedCall final : public grpc::ServerUnaryReactor {
 public:
  explicit PlacedCall(limits::OriginPlaces::Place place) : place_(std::move(place)) {}
  void OnDone() override { delete this; }

 private:
  const limits::OriginPlaces::Place place_;
};

CoordinatorStrand::Attempt RegisterAttempt(messages::RegisterCall call, LifeClaim claim,
                                           CallTrace trace, grpc::ServerUnaryReactor* reactor,
                                           grpc::ByteBuffer* reply, bool keeps_dialled_address,
                                           std::function<bool(const std::string& peer)> is_open,
                                           std::function<void(const absl::Status&)> on_refusal) {
  return [call = std::move(call), claim = std::move(claim), trace = std::move(trace), reactor,
          reply, keeps_dialled_address, is_open = std::move(is_open),
          on_refusal = std::move(on_refusal)](
             coordinator::Coordinator& coordinator, absl::Time now,
             CoordinatorStrand::Occasion occasion) mutable -> CoordinatorStrand::Delivery {
    const std::optional<std::string> holder = coordinator.PeerOfHolder(call);
    call.holder_is_gone = holder.has_value() && !is_open(*holder);
    absl::StatusOr<messages::Registration> answer = coordinator.Register(call, now);
    if (absl::IsUnavailable(answer.status()) && occasion == CoordinatorStrand::Occasion::kChange) {
      return nullptr;
    }
    if (answer.ok()) {
      if (const std::string& key = coordinator.life_key(); !key.empty()) {
        answer->life_secret = claim.SecretOf(key, answer->life);
      }
      v1::RegisterReply proto = wire::ToProto(*answer);
      proto.set_keeps_dialled_address(keeps_dialled_address);
      Serialize(proto, reply);
      trace.facts().life = answer->life;
    } else {
      on_refusal(answer.status());
    }
    return Finish(reactor, trace, answer.status());
  };
}

// Returns true if the grant is for a round.
bool HasRound(const messages::Grant& grant) {
  return grant.kind == messages::Grant::Kind::kTrain ||
         grant.kind == messages::Grant::Kind::kEvaluate;
}

// Returns an attempt that asks the coordinator for a grant, and answers the held call with it. Only
// the first question counts as a sign of life, because the worker may have died before a later one.
// If `is_ahead`, asks only once all servers have the contribution of `report`.
CoordinatorStrand::Attempt GrantAttempt(messages::WorkerLife life,
                                        std::optional<messages::RoundReport> report,
                                        bool is_leaving, bool is_ahead, bool is_without_samples,
                                        CallTrace trace, grpc::ServerUnaryReactor* reactor,
                                        v1::Grant* reply) {
  return [=, has_asked = false](
             coordinator::Coordinator& coordinator, absl::Time now,
             CoordinatorStrand::Occasion occasion) mutable -> CoordinatorStrand::Delivery {
    using Occasion = CoordinatorStrand::Occasion;
    const auto finish = [&](const absl::Status& status) { return Finish(reactor, trace, status); };
    if (occasion == Occasion::kStopping) return finish(StoppingStatus());
    if (occasion == Occasion::kReplaced) {
      return finish(
          absl::CancelledError("a newer NextGrant call of the same worker has replaced this call"));
    }
    if (is_leaving && !has_asked) {
      const absl::Status begun = coordinator.BeginLeave(life, now);
      if (!begun.ok()) return finish(begun);
    }
    if (is_ahead && job::DefersContributions(coordinator.job())) {
      return finish(
          absl::InvalidArgumentError("a NextGrant call cannot have `ahead` in a job with "
                                     "--fragments, --overlap_steps or --overlap_rounds"));
    }
    if (is_ahead && !has_asked && coordinator.AwaitsContribution(life, report->round)) {
      if (occasion != Occasion::kPatienceOver) return nullptr;
      coordinator::GrantAnswer answer;
      answer.pending_reason = "this worker's contribution is still on its way to the servers";
      *reply = wire::ToProto(answer.OrWait());
      return finish(absl::OkStatus());
    }
    if (!has_asked && report.has_value()) {
      const bool is_patience_over = occasion == Occasion::kPatienceOver;
      if (coordinator.AwaitsJournals(life, report->round, is_patience_over)) {
        if (!is_patience_over) return nullptr;
        return finish(absl::UnavailableError(
            absl::StrCat("a server that has lost its connection to the coordinator has not "
                         "confirmed that its journal has the contribution to round ",
                         report->round.value(), "; the call is retried automatically")));
      }
    }
    absl::StatusOr<coordinator::GrantAnswer> answer =
        std::exchange(has_asked, true)
            ? coordinator.PollGrant(life, now)
            : coordinator.RequestGrant(life, report, now, is_without_samples);
    if (!answer.ok()) return finish(answer.status());
    if (!answer->grant.has_value()) {
      if (occasion != Occasion::kPatienceOver) return nullptr;
      answer->pending_reason = coordinator.WhyNoGrant(life, now);
    } else if (HasRound(*answer->grant)) {
      trace.facts().round = answer->grant->round;
    }
    *reply = wire::ToProto(answer->OrWait());
    return finish(absl::OkStatus());
  };
}

}  // namespace

ClusterRpc::ClusterRpc(const Deps& deps)
    : deps_(deps),
      // One origin may have all places but one.
      large_registrations_({limits::kMaxLargeRegistrations, limits::kMaxLargeRegistrations - 1}),
      held_registrations_(kMaxHeldRegistrations),
      held_connections_(kMaxHeldConnections),
      calls_(deps.clock) {}

absl::Status ClusterRpc::CheckNotDraining() const {
  return is_draining_ ? StoppingStatus() : absl::OkStatus();
}

absl::Status ClusterRpc::CheckSpeaksFor(const grpc::CallbackServerContext& context,
                                        const messages::WorkerLife& life, CallTrace& trace) const {
  trace.facts().life = life;
  ASSIGN_OR_RETURN(const std::optional<security::Identity> caller,
                   wire::CallerOf(*context.auth_context()));
  ASSIGN_OR_RETURN(const LifeClaim claim, LifeClaim::Of(context));
  return deps_.strand->Run(
      [&](coordinator::Coordinator& coordinator, absl::Time now) -> absl::Status {
        // After a restart with an older journal, the coordinator may not know this incarnation and
        // the key of its secret yet. Then CheckCompared() returns an error, and the secret is not
        // checked.
        RETURN_IF_ERROR(coordinator.CheckCompared(now));
        // If there is no such worker, the name is empty. The coordinator returns the error later.
        const std::string name = coordinator.WorkerName(life.worker);
        trace.facts().name = name;
        if (!name.empty()) RETURN_IF_ERROR(CheckActsAs(caller, name));
        absl::Status claimed = claim.Check(coordinator.life_key(), life);
        if (claimed.ok()) {
          coordinator.NoteConnection(life, context.peer());
          return claimed;
        }
        // If the incarnation is over, the caller gets that error instead. The secret may have been
        // made with an older key, so a wrong one proves nothing.
        RETURN_IF_ERROR(coordinator.CheckLife(life));
        return claimed;
      });
}

absl::StatusOr<v1::RegisterRequest> ClusterRpc::ParseRegistration(
    const grpc::ByteBuffer& bytes, const std::string& origin, limits::OriginPlaces::Place& place) {
  const auto size = static_cast<int64_t>(bytes.Length());
  grpc::ByteBuffer message(bytes);
  if (size > limits::kMaxRegistrationBytes) {
    deps_.refusals->Count(limits::LimitReached::kLargeRegistrations);
    return absl::InvalidArgumentError(absl::StrCat("the registration has ", size,
                                                   " bytes; allowed are at most ",
                                                   limits::kMaxRegistrationBytes));
  }
  if (size > limits::kSmallRegistrationBytes) {
    place = large_registrations_.Take(origin);
    if (place == nullptr) {
      deps_.refusals->Count(limits::LimitReached::kLargeRegistrations);
      return WithRetryAfter(absl::ResourceExhaustedError(absl::StrCat(
                                "the registration has ", size, " bytes. The server reads at most ",
                                large_registrations_.config().of_origin,
                                " registrations of more than ", limits::kSmallRegistrationBytes,
                                " bytes from one address at a time. Send it again later")),
                            kPlacePause);
    }
    grpc::ProtoBufferReader reader(&message);
    ASSIGN_OR_RETURN(const int64_t tensors, wire::CountTensors(&reader, limits::kMaxClientTensors));
    if (tensors > limits::kMaxClientTensors) {
      deps_.refusals->Count(limits::LimitReached::kLayouts);
      return absl::InvalidArgumentError(
          absl::StrCat("the layout that this program gives is refused: it has more than ",
                       limits::kMaxClientTensors, " tensors"));
    }
  }
  v1::RegisterRequest request;
  const grpc::Status parsed =
      grpc::SerializationTraits<v1::RegisterRequest>::Deserialize(&message, &request);
  if (parsed.ok()) return request;
  return absl::DataLossError("the registration is not a valid RegisterRequest; send it again");
}

void ClusterRpc::CountRefusal(const v1::RegisterRequest& request, const absl::Status& refusal) {
  if (!absl::IsInvalidArgument(refusal)) return;
  if (request.name().size() > membership::MembershipTable::kMaxNameBytes) {
    deps_.refusals->Count(limits::LimitReached::kNames);
  } else if (request.has_layout()) {
    deps_.refusals->Count(limits::LimitReached::kLayouts);
  }
}

grpc::ServerUnaryReactor* ClusterRpc::Register(grpc::CallbackServerContext* context,
                                               const grpc::ByteBuffer* bytes,
                                               grpc::ByteBuffer* reply) {
  CallTrace trace(&calls_, context, "Register");
  const auto caller = wire::CallerOf(*context->auth_context());
  if (!caller.ok()) return Answer(context, trace, caller.status());
  absl::StatusOr<LifeClaim> claim = LifeClaim::Of(*context);
  if (!claim.ok()) return Answer(context, trace, claim.status());
  const std::string peer = context->peer();
  const std::string origin = membership::PeerOrigin(peer);
  limits::OriginPlaces::Place large;
  const absl::StatusOr<v1::RegisterRequest> parsed = ParseRegistration(*bytes, origin, large);
  if (!parsed.ok()) {
    trace.End(parsed.status());
    return new LateRefusal(parsed.status(), deps_.refusal_pause);
  }
  const v1::RegisterRequest* const request = &*parsed;
  trace.facts().name = request->name();
  absl::StatusOr<messages::RegisterCall> call = wire::FromProto(*request);
  CountRefusal(*request, call.status());
  if (const absl::Status speaks = CheckActsAs(*caller, request->name());
      call.ok() && !speaks.ok()) {
    deps_.refusals->Count(limits::LimitReached::kDeniedCalls);
    call = speaks;
  }
  // A registration that continues an incarnation is accepted even while the server is being
  // stopped. The worker has only lost its connection, and may still hand in its work before the
  // last checkpoint.
  bool goes_on = false;
  const absl::Status taken =
      deps_.strand->Run([&](coordinator::Coordinator& coordinator, absl::Time now) -> absl::Status {
        goes_on = call.ok() && coordinator.GoesOn(*call);
        if (!goes_on) {
          const absl::Status rate = coordinator.CheckRegistrationRate(peer, now);
          if (!rate.ok()) deps_.refusals->Count(limits::LimitReached::kRegistrations);
          RETURN_IF_ERROR(rate);
        }
        if (!call.ok()) coordinator.NoteRefusal(request->name(), peer, call.status(), now);
        return call.status();
      });
  if (!taken.ok()) return Answer(context, trace, taken);
  call->peer = peer;
  if (caller->has_value()) call->identity = (*caller)->name;
  if (const absl::Status open = CheckNotDraining(); !goes_on && !open.ok()) {
    return Answer(context, trace, open);
  }
  limits::OriginPlaces::Place held = held_registrations_.Take(origin);
  if (held == nullptr) {
    deps_.refusals->Count(limits::LimitReached::kHeldRegistrations);
    return Answer(context, trace,
                  WithRetryAfter(absl::ResourceExhaustedError(absl::StrCat(
                                     kMaxHeldRegistrations.of_origin,
                                     " registrations from one address already wait for their "
                                     "answers, the maximum; the maximum in all is ",
                                     kMaxHeldRegistrations.in_all)),
                                 kPlacePause));
  }
  v1::RegisterRequest facts;  // facts for the log of a refusal
  facts.set_name(request->name().substr(0, membership::MembershipTable::kMaxNameBytes + 1));
  if (request->has_layout()) facts.mutable_layout();
  // The last function below holds `large`, the place for a large registration, until the call is
  // answered.
  auto* const reactor = new PlacedCall(std::move(held));
  deps_.strand->Await(0, kRegisterHold,
                      RegisterAttempt(*std::move(call), *std::move(claim), std::move(trace),
                                      reactor, reply, deps_.is_address_guessed, deps_.is_open,
                                      [this, facts, large](const absl::Status& refusal) {
                                        CountRefusal(facts, refusal);
                                      }));
  return reactor;
}

grpc::ServerUnaryReactor* ClusterRpc::Join(grpc::CallbackServerContext* context,
                                           const v1::JoinRequest* request, v1::JoinReply* reply) {
  CallTrace trace(&calls_, context, "Join");
  const absl::StatusOr<messages::DatasetInfo> dataset = wire::FromProto(request->dataset());
  if (!dataset.ok()) return Answer(context, trace, dataset.status());
  const messages::WorkerLife life = wire::LifeFromProto(*request);
  if (const absl::Status speaks = CheckSpeaksFor(*context, life, trace); !speaks.ok()) {
    return Answer(context, trace, speaks);
  }
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  deps_.strand->RunAndTell(
      [&](coordinator::Coordinator& coordinator, absl::Time now) -> absl::StatusOr<ViewId> {
        if (!coordinator.IsMember(life)) RETURN_IF_ERROR(CheckNotDraining());
        return coordinator.Join(life, PeerText(request->layout_hash(), kMaxHashBytes), *dataset,
                                now);
      },
      [reactor, reply, trace](const absl::StatusOr<ViewId>& view) {
        if (view.ok()) reply->set_view_id(view->value());
        reactor->Finish(trace.End(view.status()));
      });
  return reactor;
}

grpc::ServerUnaryReactor* ClusterRpc::Heartbeat(grpc::CallbackServerContext* context,
                                                const v1::HeartbeatRequest* request,
                                                v1::HeartbeatReply* reply) {
  CallTrace trace(&calls_, context, "Heartbeat");
  const absl::StatusOr<messages::HeartbeatCall> call = wire::FromProto(*request);
  if (!call.ok()) return Answer(context, trace, call.status());
  if (const absl::Status speaks = CheckSpeaksFor(*context, call->life, trace); !speaks.ok()) {
    return Answer(context, trace, speaks);
  }
  // A heartbeat is answered without waiting for the journal: a worker stays alive even if the disk
  // is slow.
  const absl::StatusOr<messages::HeartbeatAnswer> answer =
      deps_.strand->Run([&](coordinator::Coordinator& coordinator, absl::Time now) {
        return coordinator.Heartbeat(*call, now);
      });
  if (answer.ok()) *reply = wire::ToProto(*answer);
  reply->set_keeps_dialled_address(deps_.is_address_guessed);
  return Answer(context, trace, answer.status());
}

grpc::ServerUnaryReactor* ClusterRpc::StayConnected(grpc::CallbackServerContext* context,
                                                    const v1::StayConnectedRequest* request,
                                                    v1::StayConnectedReply*) {
  CallTrace trace(&calls_, context, "StayConnected");
  if (deps_.held_connections == nullptr) return Answer(context, trace, absl::OkStatus());
  const messages::WorkerLife life = wire::LifeFromProto(*request);
  absl::Status speaks = CheckSpeaksFor(*context, life, trace);
  if (speaks.ok()) {
    speaks = deps_.strand->Run([&](coordinator::Coordinator& coordinator, absl::Time) {
      return coordinator.CheckLife(life);
    });
  }
  if (!speaks.ok()) return Answer(context, trace, speaks);
  limits::OriginPlaces::Place place =
      held_connections_.Take(membership::PeerOrigin(context->peer()));
  if (place == nullptr) {
    deps_.refusals->Count(limits::LimitReached::kHeldConnections);
    return Answer(
        context, trace,
        WithRetryAfter(
            absl::ResourceExhaustedError(absl::StrCat(
                "the server already holds ", kMaxHeldConnections.of_origin,
                " connections of workers from one address, the maximum; the maximum in all is ",
                kMaxHeldConnections.in_all)),
            kPlacePause));
  }
  return deps_.held_connections->Hold(life, context->peer(), std::move(place));
}

grpc::ServerUnaryReactor* ClusterRpc::NextGrant(grpc::CallbackServerContext* context,
                                                const v1::GrantRequest* request, v1::Grant* reply) {
  CallTrace trace(&calls_, context, "NextGrant");
  auto report = ReportOf(request->has_report(), request->report());
  if (!report.ok()) return Answer(context, trace, report.status());
  if (report->has_value()) trace.facts().round = (*report)->round;
  const messages::WorkerLife life = wire::LifeFromProto(*request);
  if (const absl::Status speaks = CheckSpeaksFor(*context, life, trace); !speaks.ok()) {
    return Answer(context, trace, speaks);
  }
  if (request->ahead() && (!report->has_value() || request->leaving())) {
    return Answer(
        context, trace,
        absl::InvalidArgumentError(
            "a NextGrant call with `ahead` must have a report, and must not have `leaving`"));
  }
  if (request->has_extends_round()) return ExtendGrant(context, *request, std::move(trace), reply);
  const absl::Duration hold = request->hold_ms() > 0
                                  ? std::min(absl::Milliseconds(request->hold_ms()), kMaxHold)
                                  : kDefaultHold;
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  deps_.strand->Await(KeyOf(life), hold,
                      GrantAttempt(life, *std::move(report), request->leaving(), request->ahead(),
                                   request->without_samples(), std::move(trace), reactor, reply));
  return reactor;
}

grpc::ServerUnaryReactor* ClusterRpc::ExtendGrant(grpc::CallbackServerContext* context,
                                                  const v1::GrantRequest& request, CallTrace trace,
                                                  v1::Grant* reply) {
  if (request.has_report() || request.leaving() || request.ahead()) {
    return Answer(context, trace,
                  absl::InvalidArgumentError("a NextGrant call with `extends_round` must not have "
                                             "a report, `leaving` or `ahead`"));
  }
  const Round round(request.extends_round());
  trace.facts().round = round;
  const messages::WorkerLife life = wire::LifeFromProto(request);
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  deps_.strand->RunAndTell(
      [life, round](coordinator::Coordinator& coordinator, absl::Time now) {
        return coordinator.ExtendGrant(life, round, now);
      },
      [reactor, reply, trace = std::move(trace)](const absl::StatusOr<messages::Grant>& grant) {
        if (grant.ok()) *reply = wire::ToProto(*grant);
        reactor->Finish(trace.End(grant.status()));
      });
  return reactor;
}

grpc::ServerUnaryReactor* ClusterRpc::Leave(grpc::CallbackServerContext* context,
                                            const v1::LeaveRequest* request, v1::LeaveReply*) {
  CallTrace trace(&calls_, context, "Leave");
  const auto report = ReportOf(request->has_report(), request->report());
  if (!report.ok()) return Answer(context, trace, report.status());
  if (report->has_value()) trace.facts().round = (*report)->round;
  const messages::WorkerLife life = wire::LifeFromProto(*request);
  if (const absl::Status speaks = CheckSpeaksFor(*context, life, trace); !speaks.ok()) {
    return Answer(context, trace, speaks);
  }
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  deps_.strand->RunAndTell(
      [&](coordinator::Coordinator& coordinator, absl::Time now) {
        return coordinator.Leave(life, PeerText(request->reason(), kMaxReasonBytes), *report, now);
      },
      [reactor, trace](const absl::Status& left) { reactor->Finish(trace.End(left)); });
  return reactor;
}

grpc::ServerWriteReactor<v1::ShardCommand>* ClusterRpc::AttachShard(
    grpc::CallbackServerContext*, const v1::AttachShardRequest* request) {
  const int shard = request->shard();
  const uint64_t instance_id = request->instance_id();
  // The address of the stream serves only as its identity. It is not dereferenced after the stream
  // is gone.
  auto address = std::make_shared<const ShardStream*>(nullptr);
  const std::shared_ptr<ShardStream> stream = ShardStream::Create(
      [this, shard, instance_id, address] { OnStreamDone(shard, instance_id, *address); });
  *address = stream.get();
  const absl::Status status = DoAttach(*request, stream);
  if (!status.ok()) stream->End(status);
  return stream.get();
}

absl::Status ClusterRpc::DoAttach(const v1::AttachShardRequest& request,
                                  const std::shared_ptr<ShardStream>& stream) {
  if (request.wire_version() != process::kWireVersion) {
    return absl::InvalidArgumentError(absl::StrCat(
        "shard ", request.shard(), " speaks wire version ", request.wire_version(),
        ", but the coordinator speaks ", process::kWireVersion, "; use the same release"));
  }
  if (request.shard() == 0) {
    return absl::InvalidArgumentError(
        "shard 0 belongs to the coordinator itself; start this server with another number, such as "
        "--shard=1/K");
  }
  // The address is checked, because all workers and servers get it and would refuse a bad one.
  RETURN_IF_ERROR(net::CheckPeerAddress(absl::StrCat("the server of shard ", request.shard()),
                                        request.address()));
  std::shared_ptr<ShardStream> old;
  const absl::Status status =
      deps_.strand->Run([&](coordinator::Coordinator& coordinator, absl::Time now) -> absl::Status {
        // While the coordinator is being stopped, only a server process that was attached before
        // may attach: the last checkpoint needs it. A new process would make the job go back to a
        // checkpoint.
        const bool goes_on = coordinator.GoesOn(request.shard(), request.instance_id(),
                                                request.server_incarnation());
        if (!goes_on) RETURN_IF_ERROR(CheckNotDraining());
        RETURN_IF_ERROR(coordinator.OnShardAttached(
            request.shard(), request.num_shards(), request.instance_id(),
            request.server_incarnation(), request.address(), now, JournalOf(request)));
        old = deps_.shards->Attach(request.shard(), request.instance_id(), stream);
        // Tells the server that it is attached. Otherwise it would learn that only with the next
        // command.
        stream->SendNumber();
        return absl::OkStatus();
      });
  if (old != nullptr)
    old->End(
        absl::AbortedError("the same server has made a newer connection, which replaces this one"));
  return status;
}

void ClusterRpc::OnStreamDone(int shard, uint64_t instance_id, const ShardStream* stream) {
  deps_.strand->Run([&](coordinator::Coordinator& coordinator, absl::Time now) {
    if (!deps_.shards->Detach(shard, stream)) return;  // a newer stream has replaced this one
    coordinator.OnShardDisconnected(shard, instance_id, now);
  });
}

// The answer to a report of contributions says nothing about the coordinator's state. So it is sent
// without waiting for the journal.
void ClusterRpc::TakeContributed(const v1::ShardReport& report) {
  deps_.strand->ReportTo([&](coordinator::Coordinator& coordinator, absl::Time) {
    std::vector<uint64_t> answerable;
    coordinator.NoteJournalEnd(report.shard(), report.contributed().journal_end());
    for (const auto& contribution : report.contributed().contributions()) {
      const messages::WorkerLife life = wire::LifeFromProto(contribution);
      logging::LogDebug("contribution received shard={} worker={} incarnation={} round={}",
                        report.shard(), life.worker, life.incarnation, contribution.round());
      if (coordinator.OnContributed(report.shard(), report.server_incarnation(), life,
                                    Round(contribution.round()))) {
        answerable.push_back(KeyOf(life));
      }
    }
    return answerable;
  });
}

grpc::ServerUnaryReactor* ClusterRpc::ReportShard(grpc::CallbackServerContext* context,
                                                  const v1::ShardReport* request,
                                                  v1::ShardReportReply* reply) {
  if (const absl::Status whole = wire::CheckChecksum(*request); !whole.ok()) {
    return Answer(context, whole);
  }
  const std::shared_ptr<ShardStream> stream =
      deps_.shards->Find(request->shard(), request->instance_id());
  if (stream == nullptr) {
    return Answer(context, absl::AbortedError(absl::StrCat("shard ", request->shard(),
                                                           " is not attached; attach again")));
  }
  const absl::Status current =
      deps_.strand->Run([&](coordinator::Coordinator& coordinator, absl::Time) {
        return coordinator.CheckNotFollowed(request->shard(), request->first_segment());
      });
  if (!current.ok()) return Answer(context, current);
  if (request->has_stats()) stream->SendNumber();
  if (request->has_stopping()) return AwaitLastCheckpoint(context, *request, reply);
  if (request->has_stats()) {
    deps_.board->SetReading(request->shard(),
                            {FromProto(request->stats()), request->stats().bytes_received(),
                             request->stats().bytes_sent()});
  }
  if (request->has_contributed()) {
    TakeContributed(*request);
    return Answer(context, absl::OkStatus());
  }
  // A report of statistics is a sign of life. Its answer says nothing about the coordinator's
  // state, so it is sent without waiting for the journal.
  if (request->has_stats()) {
    deps_.strand->Run([&, stats = FromProto(request->stats())](
                          coordinator::Coordinator& coordinator, absl::Time now) {
      coordinator.OnShardHeard(request->shard(), request->instance_id(), now);
      coordinator.OnJournalState(request->shard(), JournalOf(stats), now);
      coordinator.OnPushSpace(request->shard(), stats.push_space, now);
    });
    return Answer(context, absl::OkStatus());
  }
  const absl::StatusOr<shards::ShardEvent> event = EventOf(*request);
  if (!event.ok()) return Answer(context, event.status());
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  deps_.strand->RunAndTell(
      [&](coordinator::Coordinator& coordinator, absl::Time now) {
        coordinator.OnShardEvent(request->shard(), *event, now);
        return absl::OkStatus();
      },
      [reactor](const absl::Status& taken) { reactor->Finish(wire::ToGrpcStatus(taken)); });
  return reactor;
}

grpc::ServerUnaryReactor* ClusterRpc::AwaitLastCheckpoint(grpc::CallbackServerContext* context,
                                                          const v1::ShardReport& report,
                                                          v1::ShardReportReply* reply) {
  const absl::Duration patience = std::clamp(absl::Milliseconds(report.stopping().patience_ms()),
                                             absl::ZeroDuration(), kMaxStopPatience);
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  TakeLastCheckpoint(
      *deps_.strand, report.instance_id(), coordinator::ReasonOfStop(report.shard()), patience,
      [reactor, reply](const absl::StatusOr<checkpoints::PublishedCheckpoint>& published) {
        if (published.ok()) {
          reply->set_saved_path(published->path);
          reply->set_saved_round(published->round.value());
          reply->set_is_in_fallback(published->is_in_fallback);
        }
        reactor->Finish(wire::ToGrpcStatus(published.status()));
      });
  return reactor;
}

}  // namespace lodestar::rpc

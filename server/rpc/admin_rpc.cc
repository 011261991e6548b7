// SPDX-License-Identifier: Apache-2.0

#include "server/rpc/admin_rpc.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/logging/logging.h"
#include "common/runtime/peer_text.h"
#include "common/runtime/status_macros.h"
#include "proto/log_convert.h"
#include "proto/status_mapping.h"
#include "server/membership/registration_limit.h"
#include "server/rpc/checkpoint_calls.h"
#include "server/rpc/weights_export.h"

namespace lodestar::rpc {
namespace {

constexpr size_t kMaxReasonBytes = 256;

// Maximum time of a rollback: to set checkpoints aside, and to read and verify the one to go back
// to.
constexpr absl::Duration kRollBackPatience = absl::Minutes(30);

constexpr absl::Duration kCheckpointPatience = absl::Minutes(10);
// Maximum time to end the round under way and to take the last checkpoint, which may need several
// tries.
constexpr absl::Duration kStopPatience = absl::Minutes(10);
// Maximum number of exports at once. Each export holds a thread and the memory of a bucket.
constexpr int kMaxExports = 4;
// Maximum time in which the client must read each piece of an export. Then the export is ended.
constexpr absl::Duration kReaderPatience = absl::Seconds(30);

v1::StopReply ReplyOf(const coordinator::JobOutcome& ending, const std::string& model) {
  v1::StopReply reply;
  reply.set_model(model);
  reply.set_ending(ending.text);
  reply.set_lost_rounds(ending.lost);
  if (ending.saved.ok()) {
    reply.set_saved_path(ending.saved->path);
  } else {
    reply.set_not_saved(std::string(ending.saved.status().message()));
    // If the error is FailedPrecondition, there was nothing to save, or no place to save to.
    reply.set_is_lost(!absl::IsFailedPrecondition(ending.saved.status()));
  }
  return reply;
}

// Returns an attempt that answers the call of Stop once the job has ended, and --on_checkpoint has
// handled the last checkpoint.
CoordinatorStrand::Attempt StopAttempt(const std::string& model, const AdminRpc::Deps& deps,
                                       grpc::ServerUnaryReactor* reactor, v1::StopReply* reply) {
  return [=, &deps](coordinator::Coordinator& coordinator, absl::Time now,
                    CoordinatorStrand::Occasion occasion) -> CoordinatorStrand::Delivery {
    const auto finish = [reactor](const absl::Status& status) {
      return [reactor, status](const absl::Status& kept) {
        reactor->Finish(wire::ToGrpcStatus(kept.ok() ? status : kept));
      };
    };
    const std::optional<absl::StatusOr<coordinator::JobOutcome>> ending = coordinator.Ending();
    if (ending.has_value()) {
      if (!ending->ok()) return finish(ending->status());
      *reply = ReplyOf(**ending, model);
      return [reactor, reply, &deps](const absl::Status& kept) {
        if (!kept.ok()) return reactor->Finish(wire::ToGrpcStatus(kept));
        deps.once_checkpoint_command_done([reactor, reply](const absl::Status& command) {
          if (!command.ok() && !reply->is_lost()) {
            reply->set_not_saved(std::string(command.message()));
            reply->set_is_lost(true);
          }
          reactor->Finish(grpc::Status::OK);
        });
      };
    }
    switch (occasion) {
      case CoordinatorStrand::Occasion::kChange:
        return nullptr;
      case CoordinatorStrand::Occasion::kPatienceOver:
        return finish(absl::DeadlineExceededError(absl::StrCat(
            "the job is stopping, but has not ended after ", absl::FormatDuration(kStopPatience),
            ": ", coordinator.Snapshot(now).waiting_for)));
      case CoordinatorStrand::Occasion::kReplaced:
      case CoordinatorStrand::Occasion::kStopping:
        break;
    }
    const coordinator::JobOutcome cut_off = coordinator.EndingIfCutOff();
    if (cut_off.saved.ok()) {
      return finish(absl::UnavailableError(
          absl::StrCat("the coordinator was told to end before the job was complete. The job ",
                       cut_off.text, "; everything is saved in ", cut_off.saved->path)));
    }
    *reply = ReplyOf(cut_off, model);
    return finish(absl::OkStatus());
  };
}

std::string ReasonIn(const std::string& given) {
  return given.empty() ? "an operator asked for it" : PeerText(given, kMaxReasonBytes);
}

std::string WhoCalls(const grpc::CallbackServerContext& context) {
  return absl::StrCat(wire::CallerText(wire::CallerOf(*context.auth_context())), " at ",
                      context.peer());
}

// A PlacedAnswer is a call that holds a place of OriginPlaces until the client has read the answer
// or is gone.
class PlacedAnswer final : public grpc::ServerUnaryReactor {
 public:
  explicit PlacedAnswer(limits::OriginPlaces::Place place) : place_(std::move(place)) {}
  void OnDone() override { delete this; }

 private:
  const limits::OriginPlaces::Place place_;
};

// Returns the worker's id as text, as calls of operators name workers. The text is empty if there
// is no worker of that name.
std::string WorkerIdOf(CoordinatorStrand& strand, absl::string_view name) {
  return strand.Run([name](coordinator::Coordinator& coordinator, absl::Time now) -> std::string {
    for (const coordinator::WorkerSnapshot& worker : coordinator.Snapshot(now).workers) {
      if (worker.name == name && worker.incarnation != Incarnation()) {
        return absl::StrCat(worker.worker.value());
      }
    }
    return "";
  });
}

}  // namespace

AdminRpc::AdminRpc(job::JobSpec job, Deps deps)
    : job_(std::move(job)), deps_(std::move(deps)), exports_(kMaxExports, "export") {}

grpc::ServerUnaryReactor* AdminRpc::Order(
    grpc::CallbackServerContext* context,
    absl::FunctionRef<absl::Status(coordinator::Coordinator&, absl::Time)> order) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  deps_.strand->RunOrder(order, [reactor, who = WhoCalls(*context)](const absl::Status& status) {
    if (!status.ok()) logging::LogInfo("audit: the order of {} failed: {}", who, status.message());
    reactor->Finish(wire::ToGrpcStatus(status));
  });
  return reactor;
}

grpc::ServerUnaryReactor* AdminRpc::Checkpoint(grpc::CallbackServerContext* context,
                                               const v1::CheckpointRequest*,
                                               v1::CheckpointReply* reply) {
  logging::LogInfo("audit: {} asks for a checkpoint", WhoCalls(*context));
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  TakeCheckpoint(
      *deps_.strand, kCheckpointPatience,
      [reactor, reply](const absl::StatusOr<checkpoints::PublishedCheckpoint>& published) {
        if (published.ok()) {
          reply->set_path(published->path);
          reply->set_round(published->round.value());
        }
        reactor->Finish(wire::ToGrpcStatus(published.status()));
      });
  return reactor;
}

grpc::ServerWriteReactor<v1::ExportChunk>* AdminRpc::Export(grpc::CallbackServerContext* context,
                                                            const v1::ExportRequest*) {
  const std::shared_ptr<ExportStream> stream = ExportStream::Create(context, kReaderPatience);
  if (++num_exports_ > kMaxExports) {
    --num_exports_;
    stream->End(absl::ResourceExhaustedError(absl::StrCat(
        kMaxExports, " exports are running, the maximum; try again when one of them has ended")));
    return stream.get();
  }
  logging::LogInfo("audit: {} exports the weights", WhoCalls(*context));
  exports_.Schedule([this, stream, peer = context->peer()] {
    const absl::Status written = WriteTo(*stream);
    if (!written.ok()) logging::LogWarn("the export to peer={} failed: {}", peer, written);
    --num_exports_;
    stream->End(written);
  });
  return stream.get();
}

absl::Status AdminRpc::WriteTo(ExportStream& stream) {
  std::shared_ptr<const messages::ClusterMap> map;
  Round min_round;
  std::vector<uint64_t> export_keys;
  uint64_t server_incarnation = 0;
  job::JobSpec job;
  v1::ExportSource source;
  source.set_model(job_.model.name);
  source.set_total_rounds(job_.schedule.total_rounds);
  deps_.strand->Run([&](coordinator::Coordinator& coordinator, absl::Time) {
    job = coordinator.job();
    map = coordinator.map();
    export_keys = coordinator.shard_instances();
    min_round = coordinator.committed_round();
    server_incarnation = coordinator.server_incarnation();
    source.set_round(coordinator.rounds_done());
    source.set_is_over(coordinator.phase() == coordinator::CoordinatorPhase::kDone);
  });
  stream.Describe(source);
  if (job::ReducesOnly(job)) return absl::FailedPreconditionError(job::kReducesOnly);
  if (map == nullptr)
    return absl::UnavailableError(
        "the model's layout is not known yet; export again when the job has begun");
  RETURN_IF_ERROR(
      WeightsExport(map, std::move(job), min_round, deps_.local, &calls_, deps_.security,
                    std::move(export_keys))
          .WriteTo([&stream](absl::string_view bytes) { return stream.WriteBlocking(bytes); }));
  const uint64_t incarnation_now =
      deps_.strand->Run([](coordinator::Coordinator& coordinator, absl::Time) {
        return coordinator.server_incarnation();
      });
  if (incarnation_now == server_incarnation) return absl::OkStatus();
  return absl::UnavailableError(
      "the servers went back to a checkpoint during the export, so it has parts from before and "
      "after; export again");
}

grpc::ServerUnaryReactor* AdminRpc::Pause(grpc::CallbackServerContext* context,
                                          const v1::PauseRequest* request, v1::PauseReply*) {
  const std::string reason = ReasonIn(request->reason());
  logging::LogInfo("audit: {} orders a pause: {}", WhoCalls(*context), reason);
  return Order(context, [&](coordinator::Coordinator& coordinator, absl::Time now) {
    return coordinator.Pause(reason, now);
  });
}

grpc::ServerUnaryReactor* AdminRpc::Resume(grpc::CallbackServerContext* context,
                                           const v1::ResumeRequest*, v1::ResumeReply*) {
  logging::LogInfo("audit: {} orders the job to continue", WhoCalls(*context));
  return Order(context, [](coordinator::Coordinator& coordinator, absl::Time now) {
    return coordinator.Resume(now);
  });
}

grpc::ServerUnaryReactor* AdminRpc::SetLearningRate(grpc::CallbackServerContext* context,
                                                    const v1::SetLearningRateRequest* request,
                                                    v1::SetLearningRateReply* reply) {
  logging::LogInfo("audit: {} orders a learning rate of {}", WhoCalls(*context),
                   request->learning_rate());
  return Order(context, [&](coordinator::Coordinator& coordinator, absl::Time now) {
    const absl::StatusOr<coordinator::LearningRateChange> change =
        coordinator.SetLearningRate(request->learning_rate(), now);
    if (change.ok()) {
      reply->set_before(change->before);
      reply->set_scale(change->scale);
    }
    return change.status();
  });
}

grpc::ServerUnaryReactor* AdminRpc::Evict(grpc::CallbackServerContext* context,
                                          const v1::EvictRequest* request, v1::EvictReply* reply) {
  const std::string reason = ReasonIn(request->reason());
  logging::LogInfo("audit: {} evicts worker {}{}: {}", WhoCalls(*context),
                   PeerText(request->worker_name(), kMaxReasonBytes),
                   request->with_certificate() ? " and all names of its certificate" : "", reason);
  return Order(context, [&](coordinator::Coordinator& coordinator, absl::Time now) -> absl::Status {
    if (!request->with_certificate()) return coordinator.Evict(request->worker_name(), reason, now);
    ASSIGN_OR_RETURN(const std::string certificate,
                     coordinator.EvictWithCertificate(request->worker_name(), reason, now));
    reply->set_certificate(certificate);
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* AdminRpc::GetDashboard(grpc::CallbackServerContext* context,
                                                 const v1::DashboardRequest*,
                                                 v1::DashboardReply* reply) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  const std::string url = deps_.dashboard_url();
  if (url.empty()) {
    reactor->Finish(wire::ToGrpcStatus(absl::FailedPreconditionError(
        "there is no dashboard: start the server with --http=127.0.0.1:8080")));
    return reactor;
  }
  logging::LogInfo("audit: {} opens the dashboard", WhoCalls(*context));
  reply->set_url(url);
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

grpc::ServerUnaryReactor* AdminRpc::ReadLog(grpc::CallbackServerContext* context,
                                            const v1::ReadLogRequest* request,
                                            v1::ReadLogReply* reply) {
  limits::OriginPlaces::Place place = log_answers_.Take(membership::PeerOrigin(context->peer()));
  const bool has_place = place != nullptr;
  auto* const reactor = new PlacedAnswer(std::move(place));
  if (has_place) {
    reactor->Finish(wire::ToGrpcStatus(FillLog(*request, *reply)));
    return reactor;
  }
  deps_.refusals->Count(limits::LimitReached::kWatches);
  reactor->Finish(wire::ToGrpcStatus(absl::ResourceExhaustedError(
      absl::StrCat("too many parts of the log have not been read yet; allowed are ",
                   log_answers_.config().of_origin, " per address and ",
                   log_answers_.config().in_all, " in all. Read them, and ask again"))));
  return reactor;
}

absl::Status AdminRpc::FillLog(const v1::ReadLogRequest& request, v1::ReadLogReply& reply) const {
  if (deps_.log == nullptr) {
    return absl::FailedPreconditionError(
        "this server keeps no log in memory; look at its log file");
  }
  ASSIGN_OR_RETURN(logging::LogQuery query, wire::FromProto(request, deps_.log->id()));
  if (!query.worker.empty()) query.worker_id = WorkerIdOf(*deps_.strand, query.worker);
  reply =
      wire::ToProto(wire::LogPage{deps_.log->id(), deps_.log->process(), deps_.log->Read(query)});
  return absl::OkStatus();
}

grpc::ServerUnaryReactor* AdminRpc::Readmit(grpc::CallbackServerContext* context,
                                            const v1::ReadmitRequest* request, v1::ReadmitReply*) {
  logging::LogInfo("audit: {} readmits worker {}", WhoCalls(*context),
                   PeerText(request->worker_name(), kMaxReasonBytes));
  return Order(context, [&](coordinator::Coordinator& coordinator, absl::Time now) {
    return coordinator.Readmit(request->worker_name(), now);
  });
}

grpc::ServerUnaryReactor* AdminRpc::Stop(grpc::CallbackServerContext* context,
                                         const v1::StopRequest* request, v1::StopReply* reply) {
  const std::string reason = ReasonIn(request->reason());
  logging::LogInfo("audit: {} orders the job to stop: {}", WhoCalls(*context), reason);
  deps_.strand->Run([&](coordinator::Coordinator& coordinator, absl::Time now) {
    coordinator.RequestStop(reason, now);
  });
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  deps_.strand->Await(0, kStopPatience, StopAttempt(job_.model.name, deps_, reactor, reply));
  return reactor;
}

grpc::ServerUnaryReactor* AdminRpc::RollBack(grpc::CallbackServerContext* context,
                                             const v1::RollBackRequest* request,
                                             v1::RollBackReply* reply) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  disk_.Schedule([this, reactor, request, reply, who = WhoCalls(*context)] {
    // Checks this before the search: a checkpoint that the search has found is not removed until
    // the job has gone back to it.
    const absl::Status may = CheckMayRollBack(*request);
    if (!may.ok()) return reactor->Finish(wire::ToGrpcStatus(may));
    const absl::StatusOr<checkpoints::PublishedCheckpoint> found =
        deps_.prepare_roll_back(Round(request->round()));
    if (!found.ok()) return reactor->Finish(wire::ToGrpcStatus(found.status()));
    if (request->only_check()) {
      reply->set_path(found->path);
      reply->set_round(found->round.value());
      reply->set_rounds_undone(
          deps_.strand->Run([&](coordinator::Coordinator& coordinator, absl::Time) {
            return std::max<int64_t>(0, coordinator.rounds_done() - found->round.value());
          }));
      return reactor->Finish(grpc::Status::OK);
    }
    const std::string why = ReasonIn(request->reason());
    logging::LogInfo("audit: {} orders the job back to {}: {}", who, found->path, why);
    rpc::RollBack(*deps_.strand, Round(request->round()), why, kRollBackPatience,
                  [reactor, reply](const absl::StatusOr<RolledBack>& back) {
                    if (back.ok()) {
                      reply->set_path(back->path);
                      reply->set_round(back->round.value());
                      reply->set_rounds_undone(back->rounds_undone);
                    }
                    reactor->Finish(wire::ToGrpcStatus(back.status()));
                  });
  });
  return reactor;
}

absl::Status AdminRpc::CheckMayRollBack(const v1::RollBackRequest& request) const {
  if (request.round() < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("round is ", request.round(), "; it must be at least 0"));
  }
  RETURN_IF_ERROR(deps_.strand->CheckCanOrder());
  return deps_.strand->Run([&](coordinator::Coordinator& coordinator, absl::Time now) {
    return coordinator.CheckMayRollBack(Round(request.round()), now);
  });
}

}  // namespace lodestar::rpc

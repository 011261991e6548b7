// SPDX-License-Identifier: Apache-2.0

#include "server/rpc/shard_agent.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "common/logging/logging.h"
#include "common/process/version.h"
#include "common/runtime/remedy.h"
#include "common/runtime/status_macros.h"
#include "proto/bulk_options.h"
#include "proto/convert_cluster.h"
#include "proto/message_checksum.h"
#include "proto/status_mapping.h"
#include "server/rpc/command_order.h"
#include "server/rpc/shard_convert.h"

namespace lodestar::rpc {
namespace {

constexpr absl::Duration kFirstPause = absl::Milliseconds(100);
constexpr absl::Duration kLongestPause = absl::Seconds(2);
constexpr absl::Duration kReportDeadline = absl::Seconds(5);
constexpr int kSignOfLifeIntervals = 2;  // minimum deadline, in stats_intervals
constexpr absl::Duration kLongestDeadline = absl::Minutes(1);  // maximum deadline on slow paths
// Slowest transfer of a manifest part for which the deadline of its call is long enough.
constexpr double kSlowestBytesPerSecond = 1e5;
constexpr absl::Duration kStopTick = absl::Milliseconds(50);

std::shared_ptr<grpc::Channel> NewChannel(const std::string& coordinator,
                                          const wire::TransportSecurity& security) {
  return grpc::CreateCustomChannel(coordinator, security.channel_credentials(),
                                   wire::ControlChannelArguments());
}

std::unique_ptr<v1::ClusterService::Stub> NewStub(const std::string& coordinator,
                                                  const wire::TransportSecurity& security) {
  return v1::ClusterService::NewStub(NewChannel(coordinator, security));
}

// Returns the status with which a server ends after it was told to stop. It is Unavailable if the
// server may be started again.
absl::Status StatusOf(const shards::StopCommand& stop) {
  if (stop.instance_id != 0) return absl::UnavailableError(stop.failure);
  return stop.failure.empty() ? absl::OkStatus() : absl::FailedPreconditionError(stop.failure);
}

// Returns a message for the log of this machine's operator. It is empty if there is nothing to
// report.
std::string FailureText(const shards::ShardEvent& event) {
  if (const auto* diverged = std::get_if<shards::ShardDiverged>(&event)) return diverged->text;
  if (const auto* failing = std::get_if<shards::ShardFailing>(&event)) {
    return std::string(failing->error.message());
  }
  if (const auto* alarm = std::get_if<shards::ShardAlarm>(&event)) return alarm->text;
  return "";
}

}  // namespace

absl::Status ShardAgent::AwaitCoordinator(const net::AddressList& coordinator,
                                          const wire::TransportSecurity& security,
                                          const std::function<bool()>& is_interrupted) {
  std::vector<std::shared_ptr<grpc::Channel>> channels;
  for (const std::string& address : coordinator.all()) {
    channels.push_back(NewChannel(address, security));
  }
  while (true) {
    for (const auto& channel : channels) {
      // The channel becomes connected only if a gRPC server answers. A port that merely accepts
      // connections is not enough.
      const auto until = std::chrono::system_clock::now() + absl::ToChronoMilliseconds(kStopTick);
      if (channel->WaitForConnected(until)) return absl::OkStatus();
    }
    if (is_interrupted()) return absl::CancelledError("told to stop");
  }
}

ShardAgent::ShardAgent(Config config, Deps deps)
    : config_(std::move(config)),
      deps_(std::move(deps)),
      addresses_(config_.coordinator),
      stub_(NewStub(addresses_.current(), config_.security)),
      connection_(absl::UnavailableError(absl::StrCat("not connected to the coordinator ",
                                                      config_.coordinator.ToString(), " yet"))),
      reports_(1, "shard-reports"),
      contributed_sender_(1, "contributed") {}

ShardAgent::~ShardAgent() { Stop(); }

void ShardAgent::Start(host::ShardHost* host, const std::string& address) {
  host_ = host;
  address_ = address;
  attachments_ = std::thread([this] { RunAttachments(); });
  stats_ = std::thread([this] { RunStats(); });
}

void ShardAgent::CancelCalls() {
  calls_.CancelAll();
  absl::MutexLock lock(&mutex_);
  is_stopping_ = true;
}

absl::StatusOr<checkpoints::PublishedCheckpoint> ShardAgent::SaveBeforeStop(
    absl::Duration patience, const std::function<bool()>& is_interrupted) {
  logging::LogInfo("shard={} serves until the last checkpoint is written, at most {}",
                   config_.shard, absl::FormatDuration(patience));
  LastSaveCalls calls(patience, absl::Now(), config_.longest_last_save_call);
  const auto loaded = [this] { return host_ == nullptr ? 0 : host_->server_incarnation(); };
  while (true) {
    const absl::Status attached = connection();
    std::optional<LastSaveCalls::Outcome> outcome;
    if (attached.ok()) {
      const auto answer = CallForLastSave(calls.Next(loaded(), absl::Now()), is_interrupted);
      outcome = calls.OnAnswer(answer, loaded(), absl::Now());
    } else {
      outcome = calls.OnDisconnected(attached, loaded(), absl::Now());
    }
    if (outcome.has_value()) return *std::move(outcome);
    if (is_interrupted() || !PauseBefore(LastSaveCalls::kPause)) {
      return absl::CancelledError("stopped at once on request");
    }
  }
}

absl::StatusOr<checkpoints::PublishedCheckpoint> ShardAgent::CallForLastSave(
    const LastSaveCalls::Call& last_save, const std::function<bool()>& is_interrupted) {
  v1::ShardReport report = NewReport();
  report.mutable_stopping()->set_patience_ms(absl::ToInt64Milliseconds(last_save.patience));
  absl::Notification answered;
  absl::StatusOr<v1::ShardReportReply> reply = absl::UnknownError("");
  std::thread call([&] {
    reply = SendNow(report, last_save.deadline);
    answered.Notify();
  });
  bool was_interrupted = false;
  while (!answered.WaitForNotificationWithTimeout(kStopTick)) {
    if (was_interrupted || !is_interrupted()) continue;
    was_interrupted = true;
    CancelCalls();
  }
  call.join();
  if (was_interrupted) return absl::CancelledError("stopped at once on request");
  RETURN_IF_ERROR(reply.status());
  return checkpoints::PublishedCheckpoint{.path = reply->saved_path(),
                                          .round = Round(reply->saved_round()),
                                          .is_in_fallback = reply->is_in_fallback()};
}

void ShardAgent::Stop() {
  CancelCalls();
  if (attachments_.joinable()) attachments_.join();
  if (stats_.joinable()) stats_.join();
}

absl::Status ShardAgent::connection() const {
  absl::MutexLock lock(&mutex_);
  return connection_;
}

std::string ShardAgent::coordinator() const {
  absl::MutexLock lock(&mutex_);
  return advertised_coordinator_.empty() ? addresses_.current() : advertised_coordinator_;
}

void ShardAgent::SetConnection(const absl::Status& status) {
  absl::MutexLock lock(&mutex_);
  connection_ = status;
}

std::shared_ptr<v1::ClusterService::Stub> ShardAgent::BeginCall(grpc::ClientContext* context) {
  if (!calls_.Begin(context)) return nullptr;
  absl::MutexLock lock(&mutex_);
  return stub_;
}

absl::Status ShardAgent::EndCall(grpc::ClientContext* context, const grpc::Status& status) {
  calls_.End(context);
  absl::Status native = wire::FromGrpcStatus(status);
  if (absl::IsCancelled(native) && !calls_.are_cancelled()) {
    native = absl::UnavailableError(
        "the connection to the coordinator was silent for too long and is closed");
  }
  absl::MutexLock lock(&mutex_);
  if (RemedyFor(native) == Remedy::kReconnect)
    stub_ = NewStub(addresses_.current(), config_.security);
  return native;
}

bool ShardAgent::LookElsewhere() {
  absl::MutexLock lock(&mutex_);
  if (addresses_.size() == 1) return false;
  addresses_.Next();
  stub_ = NewStub(addresses_.current(), config_.security);
  // The address came from the last coordinator. The next coordinator may have another one.
  advertised_coordinator_.clear();
  return ++num_looked_at_ % addresses_.size() != 0;
}

bool ShardAgent::PauseBefore(absl::Duration pause) {
  const auto is_stopping = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return is_stopping_; };
  absl::MutexLock lock(&mutex_);
  return !mutex_.AwaitWithTimeout(absl::Condition(&is_stopping), pause);
}

void ShardAgent::RunAttachments() {
  const std::string coordinator = config_.coordinator.ToString();
  logging::LogInfo("shard={} coordinator={} state=connecting", config_.shard, coordinator);
  logging::ChangeLogger log;
  UnknownCalls unknown_calls;
  absl::Duration pause = kFirstPause;
  while (true) {
    const absl::Status ended = RunOneAttachment();
    const bool was_attached = connection().ok();
    if (was_attached) {
      pause = kFirstPause;
      num_looked_at_ = 0;
    }
    // Aborted means that the coordinator has given up this server. connection() keeps that error
    // until the server is attached again, even if later attempts fail in another way.
    if (absl::IsAborted(ended) || !absl::IsAborted(connection())) {
      const auto code = absl::IsAborted(ended) ? ended.code() : absl::StatusCode::kUnavailable;
      SetConnection(absl::Status(code, absl::StrCat("not connected to the coordinator ",
                                                    coordinator, ": ", ended.message())));
    }
    if (!PauseBefore(absl::ZeroDuration())) return;
    const auto tell = [&](absl::string_view what_follows) {
      log.Log(logging::LogLevel::kWarn, "coordinator",
              absl::StrCat("shard=", config_.shard, " coordinator=", coordinator,
                           " state=disconnected reason=\"", ended.message(), "\"", what_follows));
    };
    if (net::AddressList::IsElsewhere(ended) && !was_attached && LookElsewhere()) {
      tell("; trying again");
      continue;
    }
    // The error may say that the process at this address does not know the call. If there are
    // several addresses, that process may be a standby, and the agent tries the next address. If
    // there is only one address, the agent gives up.
    const bool is_unknown =
        config_.coordinator.size() == 1 && unknown_calls.IsFinal(ended, was_attached);
    if (RemedyFor(ended) == Remedy::kGiveUp || is_unknown) {
      tell("");
      deps_.on_stop(ended);
      return;
    }
    tell("; trying again");
    if (!PauseBefore(pause)) return;
    pause = std::min(pause * 2, kLongestPause);
  }
}

absl::Status ShardAgent::RunOneAttachment() {
  if (const absl::Status held = deps_.confirm_folder(); !held.ok()) {
    return absl::UnavailableError(held.message());
  }
  v1::AttachShardRequest request;
  request.set_wire_version(process::kWireVersion);
  request.set_shard(config_.shard);
  request.set_num_shards(config_.num_shards);
  request.set_address(address_);
  request.set_instance_id(host_->instance_id());
  request.set_server_incarnation(host_->server_incarnation());
  SetJournal(host_->journal_place(), &request);
  grpc::ClientContext context;
  const auto stub = BeginCall(&context);
  if (stub == nullptr) return absl::CancelledError("this server stops");
  {
    absl::MutexLock lock(&mutex_);
    has_stream_ = true;
    num_unanswered_ = 0;
  }
  const auto reader = stub->AttachShard(&context, request);
  v1::ShardCommand command;
  CommandOrder order;
  absl::Status obeyed;
  while (obeyed.ok() && reader->Read(&command)) {
    NoteMessage();
    if (!connection().ok()) {
      SetConnection(absl::OkStatus());
      logging::LogInfo("shard={} coordinator={} state=attached", config_.shard,
                       this->coordinator());
    }
    obeyed = wire::CheckChecksum(command);
    if (obeyed.ok()) obeyed = order.Take(command.number());
    const bool is_number = command.command_case() == v1::ShardCommand::COMMAND_NOT_SET;
    if (obeyed.ok() && !is_number) obeyed = Obey(command);
  }
  if (!obeyed.ok()) context.TryCancel();
  const absl::Status finished = EndCall(&context, reader->Finish());
  bool is_silent = false;
  {
    absl::MutexLock lock(&mutex_);
    has_stream_ = false;
    is_silent = num_unanswered_ > config_.max_unanswered;
  }
  if (!obeyed.ok()) return obeyed;
  if (is_silent) {
    return absl::UnavailableError(
        absl::StrCat("the coordinator has sent nothing on the stream of commands for more than ",
                     absl::FormatDuration(config_.max_unanswered * config_.stats_interval)));
  }
  return finished.ok() ? absl::UnavailableError("the coordinator closed the stream") : finished;
}

void ShardAgent::NoteMessage() {
  absl::MutexLock lock(&mutex_);
  num_unanswered_ = 0;
}

void ShardAgent::CountUnanswered(int num_intervals) {
  {
    absl::MutexLock lock(&mutex_);
    if (!has_stream_) return;
    num_unanswered_ += num_intervals;
    // On a slow path an answer usually takes several intervals. Then the agent waits for that long.
    const absl::Duration patience =
        path_.Patience(config_.max_unanswered * config_.stats_interval, kLongestDeadline);
    if (num_unanswered_ * config_.stats_interval <= patience) return;
    // The next stream gets a new connection. If the coordinator's machine has forgotten the old
    // connection, no message on it would arrive.
    stub_ = NewStub(addresses_.current(), config_.security);
  }
  calls_.Interrupt();
}

absl::Status ShardAgent::Obey(const v1::ShardCommand& wire) {
  ASSIGN_OR_RETURN(const shards::ShardCommand command, FromProto(wire));
  if (const auto* assign = std::get_if<shards::AssignCommand>(&command)) {
    absl::MutexLock lock(&mutex_);
    advertised_coordinator_ = assign->map->servers.front().address;
  }
  if (const auto* stop = std::get_if<shards::StopCommand>(&command)) {
    // The command may be for an earlier process of this server. Then this process ignores it.
    if (stop->instance_id != 0 && stop->instance_id != host_->instance_id()) {
      return absl::OkStatus();
    }
    // The result is ignored: a coordinator that does not get the report only ends a little later.
    v1::ShardReport report = NewReport();
    SetEvent(shards::ShardExiting{}, &report);
    SendNow(report, DeadlineOf(kReportDeadline)).IgnoreError();
    deps_.on_stop(StatusOf(*stop));
  }
  host_->Obey(command, FromProto(wire.follows()));
  return absl::OkStatus();
}

absl::Duration ShardAgent::DeadlineOf(absl::Duration least) {
  absl::MutexLock lock(&mutex_);
  return path_.Patience(least, kLongestDeadline);
}

v1::ShardReport ShardAgent::NewReport() const {
  v1::ShardReport report;
  report.set_shard(config_.shard);
  report.set_instance_id(host_->instance_id());
  report.set_first_segment(host_->journal_place().first_segment);
  return report;
}

absl::StatusOr<v1::ShardReportReply> ShardAgent::SendNow(v1::ShardReport report,
                                                         absl::Duration deadline) {
  wire::SetChecksum(report);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + absl::ToChronoMilliseconds(deadline));
  const auto stub = BeginCall(&context);
  if (stub == nullptr) return absl::CancelledError("this server stops");
  v1::ShardReportReply reply;
  RETURN_IF_ERROR(EndCall(&context, stub->ReportShard(&context, report, &reply)));
  return reply;
}

void ShardAgent::SendLater(v1::ShardReport report) {
  reports_.Schedule([this, report = std::move(report)] { SendUntilAnswered(report); });
}

void ShardAgent::SendUntilAnswered(const v1::ShardReport& report) {
  const auto bytes = static_cast<double>(report.ByteSizeLong());
  const absl::Duration travel = absl::Seconds(bytes / kSlowestBytesPerSecond);
  absl::Duration pause = kFirstPause;
  while (true) {
    const absl::Status answer = SendNow(report, DeadlineOf(kReportDeadline) + travel).status();
    if (answer.ok()) return;
    // If the coordinator refuses the report, it would refuse it every time. So the report is not
    // repeated.
    const bool is_refused = RemedyFor(answer) == Remedy::kGiveUp;
    if (is_refused) logging::LogWarn("shard={} report refused: {}", config_.shard, answer);
    if (is_refused || !PauseBefore(pause)) return;
    pause = std::min(pause * 2, kLongestPause);
  }
}

void ShardAgent::OnEvent(shards::ShardEvent event) {
  const std::string text = FailureText(event);
  if (!text.empty()) logging::LogError("shard={} {}", config_.shard, text);
  // For operators, the coordinator logs the fault once for all buckets of a round. This line is for
  // debugging.
  if (const auto* fault = std::get_if<sync::WorkerFault>(&event)) {
    logging::LogDebug("shard={} {}", config_.shard, fault->text);
  }
  v1::ShardReport report = NewReport();
  SetEvent(event, &report);
  SendLater(std::move(report));
}

void ShardAgent::OnContributed(uint64_t server_incarnation, const messages::WorkerLife& life,
                               Round round) {
  v1::ShardReport::Contributed::Contribution contribution;
  wire::SetLife(life, &contribution);
  contribution.set_round(round.value());
  {
    absl::MutexLock lock(&mutex_);
    const bool is_planned = !contributed_.empty();
    if (std::exchange(contributed_incarnation_, server_incarnation) != server_incarnation) {
      contributed_.clear();
    }
    contributed_.push_back(std::move(contribution));
    if (is_planned) return;
  }
  contributed_sender_.Schedule([this] { SendContributed(); });
}

void ShardAgent::SendContributed() {
  v1::ShardReport report = NewReport();
  {
    absl::MutexLock lock(&mutex_);
    report.set_server_incarnation(contributed_incarnation_);
    for (auto& contribution : contributed_) {
      *report.mutable_contributed()->add_contributions() = std::move(contribution);
    }
    contributed_.clear();
  }
  report.mutable_contributed()->set_journal_end(host_->journal_place().end);
  SendUntilAnswered(report);
}

void ShardAgent::OnDropped(absl::string_view text) {
  logging::LogInfo("shard={} {}", config_.shard, text);
}

void ShardAgent::OnNotice(absl::string_view text) {
  notices_.Log(logging::LogLevel::kWarn, "shard", absl::StrCat("shard=", config_.shard, " ", text));
}

void ShardAgent::RunStats() {
  while (PauseBefore(config_.stats_interval)) {
    // The intervals are counted, and the clock is not read. If this process was stopped for a
    // while, it sent no sign of life in that time, so no answer is missing.
    CountUnanswered(1);
    if (!connection().ok()) continue;
    const status::ShardReading reading = deps_.read_stats();
    v1::ShardReport report = NewReport();
    *report.mutable_stats() = ToProto(reading.stats, reading.bytes_received, reading.bytes_sent);
    // This call is not retried, because the next sign of life follows soon. Its answer on the
    // stream shows whether commands were lost.
    const absl::Duration deadline = DeadlineOf(kSignOfLifeIntervals * config_.stats_interval);
    const absl::Time begun = absl::Now();
    const absl::Status sent = SendNow(report, deadline).status();
    {
      absl::MutexLock lock(&mutex_);
      if (sent.ok()) path_.OnAnswered(absl::Now() - begun);
      if (absl::IsDeadlineExceeded(sent)) path_.OnUnanswered(deadline);
    }
    // The call has blocked this thread for kSignOfLifeIntervals intervals, in which no other sign
    // of life was sent.
    if (absl::IsDeadlineExceeded(sent)) CountUnanswered(kSignOfLifeIntervals);
  }
}

}  // namespace lodestar::rpc

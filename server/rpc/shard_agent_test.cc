// SPDX-License-Identifier: Apache-2.0

#include "server/rpc/shard_agent.h"

#include <grpcpp/grpcpp.h>

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/message_checksum.h"
#include "server/rpc/command_order.h"
#include "server/rpc/last_save_calls.h"

namespace lodestar::rpc {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr absl::Duration kNeverOver = absl::Hours(1);

// ScriptedCoordinator gives the answers that the test sets.
class ScriptedCoordinator final : public v1::ClusterService::Service {
 public:
  ScriptedCoordinator() {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    address = absl::StrCat("127.0.0.1:", port);
  }

  ~ScriptedCoordinator() override {
    is_over_.Notify();
    server_->Shutdown();
  }

  grpc::Status AttachShard(grpc::ServerContext* context, const v1::AttachShardRequest*,
                           grpc::ServerWriter<v1::ShardCommand>* writer) override {
    const bool is_first = num_attached_++ == 0;
    if (is_first) {
      first_peer = context->peer();
      for (const v1::ShardCommand& message : first_stream) writer->Write(message);
    } else {
      writer->Write(Numbered(1));
      if (!attached_again.HasBeenNotified()) {
        second_peer = context->peer();
        attached_again.Notify();
      }
    }
    if (!farewell.ok()) return farewell;
    is_over_.WaitForNotification();
    return grpc::Status::OK;
  }
  grpc::Status ReportShard(grpc::ServerContext*, const v1::ShardReport* report,
                           v1::ShardReportReply* reply) override {
    if (report->has_alarm()) {
      alarm = report->alarm().text();
      alarmed.Notify();
    }
    if (report->has_exiting()) has_heard_of_exit = true;
    if (report->has_contributed()) {
      absl::MutexLock lock(&mutex);
      for (const auto& one : report->contributed().contributions()) {
        contributed.push_back({report->server_incarnation(), one.worker_id(), one.incarnation(),
                               static_cast<uint64_t>(one.round())});
      }
    }
    if (swallows_signs_of_life && report->has_stats()) {
      ++num_signs_of_life;
      is_over_.WaitForNotification();
    }
    if (!report->has_stopping()) return grpc::Status::OK;
    const int call = num_asked_++;
    if (call < num_swallowed) is_over_.WaitForNotification();
    if (call == 0 && before_first_answer) before_first_answer();
    if (call > 0) reply->set_saved_round(4);
    reply->set_saved_path("spare/round-00000004");
    reply->set_is_in_fallback(true);
    return --num_not_attached >= 0 ? grpc::Status(grpc::StatusCode::ABORTED, "attach again")
                                   : grpc::Status::OK;
  }

  static v1::ShardCommand Numbered(uint64_t number) {
    v1::ShardCommand message;
    message.set_number(number);
    return message;
  }

  absl::Mutex mutex;
  // Each entry has the incarnation of the servers, the worker, its incarnation and the round.
  std::vector<std::array<uint64_t, 4>> contributed ABSL_GUARDED_BY(mutex);
  std::string address;
  std::vector<v1::ShardCommand> first_stream = {Numbered(1)};
  std::string first_peer;
  absl::Notification attached_again;
  std::string alarm;
  absl::Notification alarmed;
  std::string second_peer;
  bool swallows_signs_of_life = false;
  std::atomic<int> num_signs_of_life = 0;
  std::atomic<bool> has_heard_of_exit = false;
  grpc::Status farewell;
  std::atomic<int> num_not_attached = 0;
  // Number of calls for the last checkpoint that are never answered.
  int num_swallowed = 0;
  std::function<void()> before_first_answer;

 private:
  std::atomic<int> num_asked_ = 0;
  std::atomic<int> num_attached_ = 0;
  absl::Notification is_over_;
  std::unique_ptr<grpc::Server> server_;
};

// IdleExecutor accepts tasks, and runs none.
class IdleExecutor final : public Executor {
 public:
  void Schedule(Task) override {}
  int num_threads() const override { return 1; }
};

// Does the last save of a server that has weights. The server is told to stop while it connects, or
// once it is attached.
absl::StatusOr<checkpoints::PublishedCheckpoint> SaveBeforeStop(
    const std::string& coordinator, absl::Duration patience, bool is_attached = false,
    absl::Duration longest_call = LastSaveCalls::kLongestCall,
    const std::function<void(host::ShardHost&)>& begin = [](host::ShardHost&) {}) {
  IdleExecutor commands;
  ShardAgent agent(
      {.coordinator = net::AddressList::Of(coordinator), .longest_last_save_call = longest_call},
      {.read_stats = [] { return status::ShardReading{}; }, .on_stop = [](const auto&) {}});
  host::ShardHost host(1, {.executor = &commands, .commands = &commands, .reports = &agent});
  shards::AssignCommand assignment;
  assignment.server_incarnation = 3;
  host.Obey(assignment);
  begin(host);
  agent.Start(&host, "host:1");
  while (is_attached && !agent.connection().ok()) std::this_thread::yield();
  auto saved = agent.SaveBeforeStop(patience, [] { return false; });
  agent.Stop();
  return saved;
}

TEST(ShardAgentTest, TheCoordinatorHearsOfAlarmsWhereverItIs) {
  ScriptedCoordinator coordinator;
  // The second server knows none of the calls, like a process that stands by for the coordinator.
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  v1::ClusterService::Service stranger;
  builder.RegisterService(&stranger);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  const std::vector<std::string> addresses = {"127.0.0.1:1", absl::StrCat("127.0.0.1:", port),
                                              coordinator.address};
  IdleExecutor commands;
  ShardAgent agent(
      {.coordinator = net::AddressList(addresses)},
      {.read_stats = [] { return status::ShardReading{}; }, .on_stop = [](const auto&) {}});
  host::ShardHost host(1, {.executor = &commands, .commands = &commands, .reports = &agent});
  agent.Start(&host, "host:1");
  agent.OnEvent(shards::ShardAlarm{"the disk is full"});
  coordinator.alarmed.WaitForNotification();
  EXPECT_EQ(coordinator.alarm, "the disk is full");
  agent.Stop();
}

TEST(ShardAgentTest, TheCoordinatorHearsOfWholeContributions) {
  ScriptedCoordinator coordinator;
  IdleExecutor commands;
  ShardAgent agent(
      {.coordinator = net::AddressList::Of(coordinator.address)},
      {.read_stats = [] { return status::ShardReading{}; }, .on_stop = [](const auto&) {}});
  host::ShardHost host(1, {.executor = &commands, .commands = &commands, .reports = &agent});
  agent.Start(&host, "host:1");
  while (!agent.connection().ok()) std::this_thread::yield();
  std::vector<std::array<uint64_t, 4>> told;
  for (uint64_t worker = 1; worker <= 20; ++worker) {
    agent.OnContributed(3, {WorkerId(worker), Incarnation(worker + 100)}, Round(worker % 2));
    told.push_back({3, worker, worker + 100, worker % 2});
  }
  {
    absl::MutexLock lock(&coordinator.mutex);
    const auto all_are_there = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(coordinator.mutex) {
      return coordinator.contributed.size() == told.size();
    };
    coordinator.mutex.Await(absl::Condition(&all_are_there));
    EXPECT_EQ(coordinator.contributed, told);
  }
  agent.Stop();
}

TEST(ShardAgentTest, AStoppingServerThatIsJustConnectingAsksUntilItIsAnswered) {
  ScriptedCoordinator coordinator;
  coordinator.num_not_attached = 2;
  const auto saved = SaveBeforeStop(coordinator.address, kNeverOver);
  ASSERT_OK(saved);
  EXPECT_EQ(saved->path, "spare/round-00000004");
  EXPECT_TRUE(saved->is_in_fallback);
}

TEST(ShardAgentTest, ACoordinatorThatIsThereAndDoesNotAnswerIsALoss) {
  ScriptedCoordinator coordinator;
  coordinator.num_not_attached = 1'000'000;
  EXPECT_THAT(SaveBeforeStop(coordinator.address, absl::Milliseconds(1), /*is_attached=*/true),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("attach again")));
}

TEST(ShardAgentTest, ACoordinatorThatIsNotThereIsWaitedForOnlySoLong) {
  EXPECT_THAT(SaveBeforeStop("127.0.0.1:1", absl::Milliseconds(1)),
              StatusIs(absl::StatusCode::kUnavailable));
}

TEST(ShardAgentTest, ACoordinatorThatHasSaidThatItStopsIsNotWaitedFor) {
  ScriptedCoordinator coordinator;
  coordinator.farewell = {grpc::StatusCode::ABORTED, "all is saved in ckpt"};
  // The coordinator would answer "not attached" if the server called it. The server must not call.
  coordinator.num_not_attached = 1'000'000;
  EXPECT_THAT(SaveBeforeStop(coordinator.address, kNeverOver),
              StatusIs(absl::StatusCode::kAborted, HasSubstr("all is saved")));
}

// The calls go over a connection that loses them without breaking.
TEST(ShardAgentTest, AStoppingServerWhoseCallIsNotAnsweredAsksAgain) {
  ScriptedCoordinator coordinator;
  coordinator.num_swallowed = 2;
  // The time limit makes the test fail if the server does not ask again.
  EXPECT_OK(SaveBeforeStop(coordinator.address, absl::Seconds(10), /*is_attached=*/true,
                           /*longest_call=*/absl::Milliseconds(10)));
}

TEST(ShardAgentTest, WhatWasSaidBeforeAServerHasLoadedAgainIsNotBelieved) {
  ScriptedCoordinator coordinator;
  const auto saved =
      SaveBeforeStop(coordinator.address, kNeverOver, /*is_attached=*/true,
                     LastSaveCalls::kLongestCall, [&coordinator](host::ShardHost& host) {
                       coordinator.before_first_answer = [&host] {
                         shards::AssignCommand assignment;
                         assignment.server_incarnation = 4;
                         host.Obey(assignment);
                       };
                     });
  ASSERT_OK(saved);
  EXPECT_EQ(saved->round, Round(4)) << "of the first answer";
}

// Runs a server until it attaches again. Returns false if it was told to stop before.
bool AttachesAgainWithoutStopping(ScriptedCoordinator& coordinator) {
  std::atomic<bool> is_told_to_stop = false;
  IdleExecutor commands;
  ShardAgent agent({.coordinator = net::AddressList::Of(coordinator.address)},
                   {.read_stats = [] { return status::ShardReading{}; },
                    .on_stop = [&](const absl::Status&) { is_told_to_stop = true; }});
  host::ShardHost host(1, {.executor = &commands, .commands = &commands, .reports = &agent});
  agent.Start(&host, "host:1");
  // The time limit makes the test fail if the server does not connect again.
  EXPECT_TRUE(coordinator.attached_again.WaitForNotificationWithTimeout(absl::Seconds(10)));
  agent.Stop();
  return !is_told_to_stop;
}

// The commands come over a connection that loses messages without breaking.
TEST(ShardAgentTest, WhereACommandIsMissingAServerObeysNoneAfterItAndConnectsAgain) {
  ScriptedCoordinator coordinator;
  coordinator.first_stream.push_back(ScriptedCoordinator::Numbered(2));
  coordinator.first_stream.push_back(ScriptedCoordinator::Numbered(4));
  coordinator.first_stream.back().mutable_stop();
  EXPECT_TRUE(AttachesAgainWithoutStopping(coordinator));
}

TEST(ShardAgentTest, AServerDoesNotObeyADamagedCommandAndConnectsAgain) {
  ScriptedCoordinator coordinator;
  v1::ShardCommand command = ScriptedCoordinator::Numbered(2);
  command.mutable_norm_total()->set_total_square_sum(1.0);
  wire::SetChecksum(command);
  command.mutable_stop();  // in place of the norm
  coordinator.first_stream.push_back(command);
  EXPECT_TRUE(AttachesAgainWithoutStopping(coordinator));
}

TEST(ShardAgentTest, AServerSaysThatItGoesBeforeItDoes) {
  ScriptedCoordinator coordinator;
  coordinator.first_stream.push_back(ScriptedCoordinator::Numbered(2));
  coordinator.first_stream.back().mutable_stop();
  absl::Notification goes;
  IdleExecutor commands;
  ShardAgent agent({.coordinator = net::AddressList::Of(coordinator.address)},
                   {.read_stats = [] { return status::ShardReading{}; },
                    .on_stop =
                        [&](const absl::Status& status) {
                          EXPECT_OK(status);
                          EXPECT_TRUE(coordinator.has_heard_of_exit);
                          goes.Notify();
                        }});
  host::ShardHost host(1, {.executor = &commands, .commands = &commands, .reports = &agent});
  agent.Start(&host, "host:1");
  // The time limit makes the test fail if the server does not stop.
  EXPECT_TRUE(goes.WaitForNotificationWithTimeout(absl::Seconds(10)));
  agent.Stop();
}

// The stream stays silent because the coordinator did not get the call, or because its answer was
// lost.
TEST(ShardAgentTest, AStreamOnWhichNothingComesIsOpenedAgain) {
  ScriptedCoordinator coordinator;
  coordinator.first_stream.clear();
  IdleExecutor commands;
  ShardAgent agent(
      {.coordinator = net::AddressList::Of(coordinator.address),
       .stats_interval = absl::Milliseconds(50),
       .max_unanswered = 2},
      {.read_stats = [] { return status::ShardReading{}; }, .on_stop = [](const auto&) {}});
  host::ShardHost host(1, {.executor = &commands, .commands = &commands, .reports = &agent});
  agent.Start(&host, "host:1");
  // The time limit makes the test fail if the server does not connect again.
  EXPECT_TRUE(coordinator.attached_again.WaitForNotificationWithTimeout(absl::Seconds(10)));
  agent.Stop();
}

// The coordinator has forgotten the connection. The server must not wait until gRPC notices that.
TEST(ShardAgentTest, AConnectionThatSwallowsEverythingIsGivenUpAfterAFewSignsOfLife) {
  ScriptedCoordinator coordinator;
  coordinator.swallows_signs_of_life = true;
  IdleExecutor commands;
  ShardAgent agent(
      {.coordinator = net::AddressList::Of(coordinator.address),
       .stats_interval = absl::Milliseconds(20),
       .max_unanswered = 8},
      {.read_stats = [] { return status::ShardReading{}; }, .on_stop = [](const auto&) {}});
  host::ShardHost host(1, {.executor = &commands, .commands = &commands, .reports = &agent});
  agent.Start(&host, "host:1");
  // The time limit makes the test fail if the server does not connect again.
  ASSERT_TRUE(coordinator.attached_again.WaitForNotificationWithTimeout(absl::Seconds(10)));
  agent.Stop();
  EXPECT_NE(coordinator.second_peer, coordinator.first_peer);
  EXPECT_LT(coordinator.num_signs_of_life, 8) << "fewer than max_unanswered";
}

class LastSaveCallsTest : public testing::Test {
 protected:
  static constexpr absl::Duration kPatience = absl::Seconds(35);
  static constexpr uint64_t kLife = 3;  // incarnation of the servers

  // Ends the call without an answer.
  std::optional<LastSaveCalls::Outcome> TimeOut(const LastSaveCalls::Call& call) {
    now_ += call.deadline;
    return calls_.OnAnswer(absl::DeadlineExceededError("Deadline Exceeded"), kLife, now_);
  }

  absl::Time now_ = absl::UnixEpoch();
  LastSaveCalls calls_{kPatience, now_};
  const checkpoints::PublishedCheckpoint saved_ = {.path = "ckpt/round-00000004",
                                                   .round = Round(4)};
};

TEST_F(LastSaveCallsTest, NoCallIsWaitedForLongAndTheLastOneForItsAnswer) {
  std::vector<int64_t> patience, deadlines;
  std::optional<LastSaveCalls::Outcome> outcome;
  while (!outcome.has_value()) {
    const LastSaveCalls::Call call = calls_.Next(kLife, now_);
    patience.push_back(absl::ToInt64Seconds(call.patience));
    deadlines.push_back(absl::ToInt64Seconds(call.deadline));
    outcome = TimeOut(call);
  }
  EXPECT_THAT(patience, ElementsAre(35, 25, 15, 5));
  EXPECT_THAT(deadlines, ElementsAre(10, 10, 10, 7));
  EXPECT_THAT(*outcome, StatusIs(absl::StatusCode::kDataLoss,
                                 HasSubstr("the coordinator did not answer within 35s")));
}

TEST_F(LastSaveCallsTest, ThatTheCoordinatorHasGivenUpIsAnAnswer) {
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(TimeOut(calls_.Next(kLife, now_)).has_value());
  now_ += calls_.Next(kLife, now_).patience;
  const auto outcome = calls_.OnAnswer(
      absl::DeadlineExceededError("rounds 3 to 5 are in no checkpoint"), kLife, now_);
  ASSERT_TRUE(outcome.has_value());
  EXPECT_THAT(*outcome, StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("rounds 3 to 5")));
}

TEST_F(LastSaveCallsTest, AnAnswerHoldsForTheServersLifeInWhichItWasAskedFor) {
  calls_.Next(kLife, now_);
  EXPECT_FALSE(calls_.OnAnswer(saved_, kLife + 1, now_).has_value());
  calls_.Next(kLife + 1, now_);
  EXPECT_FALSE(calls_.OnAnswer(absl::DataLossError("disk full"), kLife + 2, now_).has_value());
  calls_.Next(kLife + 2, now_);
  const auto outcome = calls_.OnAnswer(saved_, kLife + 2, now_);
  ASSERT_TRUE(outcome.has_value());
  EXPECT_EQ((*outcome)->path, saved_.path);
  now_ += kPatience;
  EXPECT_THAT(*calls_.OnAnswer(saved_, kLife + 3, now_),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("have replaced since")));
}

TEST_F(LastSaveCallsTest, AServerWithWeightsWaitsForTheConnectionUnlessItWasLetGo) {
  const absl::Status cut = absl::UnavailableError("cut");
  EXPECT_FALSE(calls_.OnDisconnected(cut, kLife, now_).has_value());
  EXPECT_EQ(calls_.OnDisconnected(cut, /*server_incarnation=*/0, now_)->status(), cut);
  const absl::Status let_go = absl::AbortedError("bye");
  EXPECT_EQ(calls_.OnDisconnected(let_go, kLife, now_)->status(), let_go);
  EXPECT_EQ(calls_.OnDisconnected(cut, kLife, now_ + kPatience)->status(), cut) << "never there";
  calls_.Next(kLife, now_);
  EXPECT_THAT(*calls_.OnDisconnected(cut, kLife, now_ + kPatience),
              StatusIs(absl::StatusCode::kDataLoss));
}

TEST(CommandOrderTest, NamesWhatIsMissing) {
  CommandOrder order;
  EXPECT_OK(order.Take(1));
  EXPECT_OK(order.Take(2));
  EXPECT_THAT(order.Take(5), StatusIs(absl::StatusCode::kDataLoss,
                                      HasSubstr("command 5 of the coordinator came after 2")));
  CommandOrder begun_late;
  EXPECT_FALSE(begun_late.Take(2).ok()) << "the first is lost";
  CommandOrder unnumbered;
  EXPECT_OK(unnumbered.Take(0));
  EXPECT_OK(unnumbered.Take(0));
}

}  // namespace
}  // namespace lodestar::rpc

// SPDX-License-Identifier: Apache-2.0

#include "proto/status_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"

namespace lodestar::wire {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

v1::ClusterStatus Training() {
  v1::ClusterStatus status;
  status.set_software_version("0.1.0+4c92bfa100");
  status.set_server_incarnation(9);
  status.set_uptime_seconds(75);
  status.mutable_job()->set_mode(v1::MODE_SYNC);
  status.mutable_job()->mutable_model()->set_name("gpt-nano");
  status.mutable_job()->mutable_optimizer()->set_kind(v1::OPTIMIZER_KIND_ADAMW);
  status.set_num_parameters(834304);
  status.set_layout_hash("074baf8a21ddc077");
  status.set_state("training");
  status.set_round(21);
  status.set_total_rounds(60);
  status.set_train_loss(0.6931471805599453);
  status.set_train_bits_per_byte(1.0);
  status.set_train_loss_round(20);
  status.set_samples_per_second(64);
  status.set_tokens_per_second(4096);
  status.set_eta_seconds(12);
  v1::OpenRoundStatus* round = status.mutable_open_round();
  status.set_leader_lease("etcd://e:2379/run");
  status.set_journal_replica("backup:50061 has everything");
  round->set_round(20);
  round->set_waiting_for("round 20 waits for a_worker_with_quite_a_long_name, open for 2s");
  round->add_missing()->set_worker("a_worker_with_quite_a_long_name");
  for (const char* name : {"a_worker_with_quite_a_long_name", "b"}) {
    v1::WorkerStatus* worker = status.add_workers();
    worker->set_name(name);
    worker->set_worker_id(7);
    worker->set_state("member");
    worker->set_activity("compute");
    worker->set_round(20);
    worker->set_samples_per_second(32);
    worker->set_device("cpu (avx512, 1 thread)");
  }
  v1::ShardStatus* shard = status.add_shards();
  shard->set_address("127.0.0.1:50051");
  shard->set_state("serving");
  return status;
}

size_t LongestLine(const std::string& text) {
  size_t longest = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n'))
    longest = std::max(longest, line.size());
  return longest;
}

TEST(StatusTextTest, NoRoundIsShownBeforeAnythingIsLoaded) {
  v1::ClusterStatus status = Training();
  EXPECT_THAT(StatusText(status, kUnlimitedColumns), HasSubstr("round 21 of"));
  status.set_server_incarnation(0);
  status.set_state("waiting_for_servers");
  EXPECT_THAT(StatusText(status, kUnlimitedColumns),
              AllOf(HasSubstr("waiting_for_servers: nothing is loaded"), Not(HasSubstr(" of 60"))));
}

TEST(StatusTextTest, TellsOfLocalStepsAndWhatOverlapsThem) {
  v1::ClusterStatus status = Training();
  v1::JobSpec& job = *status.mutable_job();
  job.set_mode(v1::MODE_LOCAL_SGD);
  job.set_local_steps(20);
  job.set_outer_optimizer(v1::OUTER_OPTIMIZER_KIND_AVERAGE);
  EXPECT_THAT(StatusText(status, kUnlimitedColumns),
              HasSubstr("local_sgd (20 steps between exchanges, outer average), model"));
  job.set_outer_optimizer(v1::OUTER_OPTIMIZER_KIND_NESTEROV);
  job.set_outer_learning_rate(0.7);
  job.set_outer_momentum(0.9);
  job.set_fragments(4);
  job.set_overlap_steps(2);
  EXPECT_THAT(StatusText(status, kUnlimitedColumns),
              HasSubstr("(20 steps between exchanges, 4 fragments, merged 2 steps later, outer "
                        "nesterov 0.7 0.9 (7-fold)), model"));
  job.set_outer_reduction(v1::OUTER_REDUCTION_DIRECTION);
  EXPECT_THAT(StatusText(status, kUnlimitedColumns),
              HasSubstr("outer nesterov 0.7 0.9 (7-fold) of mean directions), model"));
  job.set_merge(v1::MERGE_KIND_MIX);
  job.set_merge_alpha(0.25);
  EXPECT_THAT(StatusText(status, kUnlimitedColumns),
              HasSubstr("merged 2 steps later by mixing 0.25 of the worker's own weights, outer"));
  job.set_fragments(1);
  job.set_overlap_steps(0);
  job.set_overlap_rounds(true);
  EXPECT_THAT(StatusText(status, kUnlimitedColumns),
              HasSubstr("(20 steps between exchanges, overlapped rounds, outer nesterov"));
}

TEST(StatusTextTest, TellsOfLocalStepsThatNobodyWaitsFor) {
  v1::ClusterStatus status = Training();
  v1::JobSpec& job = *status.mutable_job();
  job.set_mode(v1::MODE_ASYNC_LOCAL_SGD);
  job.set_local_steps(20);
  job.set_outer_optimizer(v1::OUTER_OPTIMIZER_KIND_NESTEROV);
  job.set_outer_learning_rate(0.7);
  job.set_outer_momentum(0.9);
  EXPECT_THAT(StatusText(status, kUnlimitedColumns),
              HasSubstr("async_local_sgd (20 steps between exchanges, outer nesterov 0.7 0.9 "
                        "(7-fold), anchor worker), "));
  job.set_momentum_correction(v1::MOMENTUM_CORRECTION_HELOCO);
  EXPECT_THAT(StatusText(status, kUnlimitedColumns),
              HasSubstr("outer nesterov 0.7 0.9 (7-fold), corrected by heloco, anchor worker), "));
  job.set_anchor(v1::ANCHOR_SERVER);
  EXPECT_THAT(StatusText(status, kUnlimitedColumns), HasSubstr(", anchor server), "));
}

TEST(StatusTextTest, TellsTheOuterMomentumWhereThereIsOne) {
  v1::ClusterStatus status = Training();
  v1::JobSpec& job = *status.mutable_job();
  job.set_mode(v1::MODE_LOCAL_SGD);
  job.set_local_steps(20);
  job.set_outer_learning_rate(0.9);
  job.set_outer_momentum(0.8);
  job.set_outer_optimizer(v1::OUTER_OPTIMIZER_KIND_EASGD);
  EXPECT_THAT(StatusText(status, kUnlimitedColumns), HasSubstr(", outer easgd 0.9), model"));
  job.set_outer_optimizer(v1::OUTER_OPTIMIZER_KIND_ADAM);
  EXPECT_THAT(StatusText(status, kUnlimitedColumns), HasSubstr(", outer adam 0.9 0.8), model"));
}

TEST(StatusTextTest, EncodingsAreShownWithTheirParameters) {
  v1::ClusterStatus status = Training();
  v1::JobSpec& job = *status.mutable_job();
  job.set_push_encoding(v1::ENCODING_TOPK2);
  job.set_topk(32);
  job.set_topk_divisor(v1::TOPK_DIVISOR_SENDERS);
  job.set_pull_encoding(v1::ENCODING_INT4);
  job.set_error_feedback(true);
  job.set_feedback_decay(0.95);
  EXPECT_THAT(
      StatusText(status, kUnlimitedColumns),
      HasSubstr(", push topk (32 of 4096 in 2 bits, by senders), pull int4, feedback decays by "
                "0.95"));
}

TEST(StatusTextTest, TellsHowLongAWorkerTookToBeOfUse) {
  v1::ClusterStatus status = Training();
  EXPECT_THAT(WorkersText(status, kUnlimitedColumns), Not(HasSubstr("12.3s")));
  status.mutable_workers(1)->set_start_to_contribution_seconds(12.34);
  EXPECT_THAT(WorkersText(status, kUnlimitedColumns), HasSubstr(" 12.3s  "));
}

TEST(StatusTextTest, TellsIndexOfEachWorkerThatHasOne) {
  v1::ClusterStatus status = Training();
  status.mutable_workers(1)->set_index(31);
  EXPECT_THAT(WorkersText(status, kUnlimitedColumns),
              AllOf(HasSubstr("  INDEX  "), HasSubstr("      -  "), HasSubstr("     31  ")));
}

TEST(StatusTextTest, TellsHowFastThePathOfAWorkerIs) {
  v1::ClusterStatus status = Training();
  EXPECT_THAT(WorkersText(status, kUnlimitedColumns), HasSubstr("  -/-/-  "));
  status.mutable_workers(1)->set_path_up_bytes_per_second(12.25e6);
  status.mutable_workers(1)->set_path_round_trip_seconds(0.0501);
  EXPECT_THAT(WorkersText(status, kUnlimitedColumns), HasSubstr("  98/-/50.1ms  "));
}

TEST(StatusTextTest, TellsExposedCommunicationAsShareAndPerRound) {
  v1::ClusterStatus status = Training();
  v1::WorkerStatus& worker = *status.mutable_workers(1);
  worker.set_compute_share(0.88);
  worker.set_communication_share(0.09);
  worker.set_wait_share(0.03);
  EXPECT_THAT(WorkersText(status, kUnlimitedColumns), HasSubstr("  88/9/3 %              -  "))
      << "of an older server";
  worker.set_exposed_seconds_per_round(0.0857);
  EXPECT_THAT(WorkersText(status, kUnlimitedColumns),
              AllOf(HasSubstr("COMPUTE/EXPOSED/WAIT  EXPOSED/ROUND"),
                    HasSubstr("  88/9/3 %        85.7 ms  ")));
  worker.set_exposed_seconds_per_round(1.2345);
  EXPECT_THAT(WorkersText(status, kUnlimitedColumns), HasSubstr("  88/9/3 %        1234 ms  "));
}

TEST(StatusTextTest, TellsHowAJobHasChosenItsExchange) {
  v1::ClusterStatus status = Training();
  EXPECT_THAT(StatusText(status, kUnlimitedColumns), Not(HasSubstr("\nexchange")));
  status.set_exchange_choice("sync, int8 (--mode=sync)");
  EXPECT_THAT(StatusText(status, kUnlimitedColumns),
              HasSubstr("\nexchange  sync, int8 (--mode=sync)\n"));
}

TEST(StatusTextTest, TellsWhatNobodyTrainsOn) {
  v1::ClusterStatus status = Training();
  EXPECT_THAT(StatusText(status, kUnlimitedColumns), Not(HasSubstr("not trained on")));
  status.set_untrained_samples(17);
  EXPECT_THAT(StatusText(status, kUnlimitedColumns),
              HasSubstr(" samples (17 of them were not trained on)"));
}

TEST(StatusTextTest, TellsWhatErrorFeedbackHasLost) {
  v1::ClusterStatus status = Training();
  EXPECT_THAT(WorkersText(status, kUnlimitedColumns), Not(HasSubstr("residual")));
  status.mutable_workers(1)->set_residuals_lost(1);
  EXPECT_THAT(WorkersText(status, kUnlimitedColumns),
              HasSubstr("\nb  began without the residual of its earlier rounds: the part of its "));
  status.mutable_workers(1)->set_residuals_lost(3);
  EXPECT_THAT(WorkersText(status, kUnlimitedColumns),
              HasSubstr("earlier rounds, 3 times: the part"));
}

TEST(StatusTextTest, FitsTheTerminalAndIsWholeInAPipe) {
  const v1::ClusterStatus status = Training();
  for (const int columns : {60, 80, 100, 200}) {
    EXPECT_LE(LongestLine(StatusText(status, columns)), columns);
    EXPECT_LE(LongestLine(WorkersText(status, columns)), columns);
  }
  // A narrow table keeps the most important columns.
  EXPECT_THAT(WorkersText(status, 60), HasSubstr("a_worker_with_quite_a_long_name  member"));
  const std::string whole = StatusText(status, kUnlimitedColumns);
  EXPECT_THAT(whole, HasSubstr("STALE"));
  EXPECT_THAT(whole, HasSubstr("cpu (avx512, 1 thread)"));
  EXPECT_THAT(whole, HasSubstr("\nloss      train 1.000 bits/byte (0.6931 nats) in round 20; "));
  EXPECT_THAT(whole, HasSubstr("\nleader    holds etcd://e:2379/run\n"));
  EXPECT_THAT(whole, HasSubstr("\nreplica   backup:50061 has everything\n"));
  EXPECT_THAT(whole, HasSubstr("\nspeed     64.0 samples/s, 4096 tokens/s\n"));
}

TEST(StatusTextTest, EachServerHasALineForItsReplica) {
  v1::ClusterStatus status = Training();
  v1::ShardStatus* first = status.mutable_shards(0);
  first->set_journal_replica("backup:50061: connection refused");
  EXPECT_THAT(StatusText(status, kUnlimitedColumns),
              HasSubstr("\nreplica   backup:50061: connection refused\n"));
  v1::ShardStatus* second = status.add_shards();
  second->set_shard(1);
  second->set_state("serving");
  EXPECT_THAT(StatusText(status, kUnlimitedColumns),
              HasSubstr("\nreplica   shard 0: backup:50061: connection refused\n"
                        "replica   shard 1: none\n"));
  second->set_state("away");
  EXPECT_THAT(StatusText(status, kUnlimitedColumns),
              HasSubstr("\nreplica   shard 1: not known, its server is away\n"));
  second->set_journal_replica("backup:50062 has everything");
  first->clear_journal_replica();
  EXPECT_THAT(StatusText(status, kUnlimitedColumns),
              HasSubstr("\nreplica   shard 0: none\n"
                        "replica   shard 1: backup:50062 has everything\n"));
}

TEST(StatusTextTest, RefusedConnectionsAreCounted) {
  v1::ClusterStatus status = Training();
  v1::PortStatus* port = status.mutable_port();
  port->set_connections(7);
  port->set_max_connections(4096);
  EXPECT_THAT(StatusText(status, kUnlimitedColumns), Not(HasSubstr("\nport")));
  for (const auto& [reason, count] : {std::pair("silent", 12), std::pair("too many", 3)}) {
    v1::RefusedConnections* refused = port->add_refused();
    refused->set_reason(reason);
    refused->set_count(count);
  }
  EXPECT_THAT(StatusText(status, kUnlimitedColumns),
              HasSubstr("\nport      7 of 4096 connections; refused: 12 silent, 3 too many\n"));
}

TEST(StatusTextTest, SaysWhatLimitsTheServerHasAndWhatTheyHaveRefused) {
  v1::ClusterStatus status = Training();
  EXPECT_THAT(StatusText(status, kUnlimitedColumns), Not(HasSubstr("\nlimits")));
  v1::LimitsStatus* limits = status.mutable_limits();
  limits->set_memory_bytes(212'000'000);
  limits->set_memory_bound_bytes(3'100'000'000);
  EXPECT_THAT(StatusText(status, kUnlimitedColumns),
              HasSubstr("\nlimits    212.0 MB of memory, at most 3.10 GB\n"));
  v1::LimitRefusals* refused = limits->add_refused();
  refused->set_reason("too many registrations");
  refused->set_count(12);
  EXPECT_THAT(StatusText(status, kUnlimitedColumns),
              HasSubstr("at most 3.10 GB; refused: too many registrations (12)\n"));
}

TEST(StatusTextTest, SaysThatThereIsAJournal) {
  v1::ClusterStatus status = Training();
  status.set_durability("checkpoint");
  EXPECT_THAT(StatusText(status, kUnlimitedColumns), Not(HasSubstr("durability")));
  status.set_durability("journal");
  EXPECT_THAT(StatusText(status, kUnlimitedColumns),
              HasSubstr(", optimizer adamw, durability journal\n"));
}

TEST(StatusTextTest, MetricsOfProgramsAreByRound) {
  v1::ClusterStatus status = Training();
  EXPECT_THAT(StatusText(status, kUnlimitedColumns), Not(HasSubstr("metrics")));
  const auto add = [&status](const char* name, double value, int64_t round) {
    v1::ProgramMetric* metric = status.add_metrics();
    metric->set_name(name);
    metric->set_value(value);
    metric->set_round(round);
  };
  add("bleu", 27.125, 10);
  add("grad_norm", 1.25, 19);
  add("scale", 65536, 19);
  EXPECT_THAT(StatusText(status, kUnlimitedColumns),
              HasSubstr("metrics   grad_norm 1.25, scale 65536 in round 19; bleu 27.125 in round "
                        "10\n"));
  status.set_metrics_dropped(3);
  EXPECT_THAT(StatusText(status, kUnlimitedColumns),
              HasSubstr("in round 10; 3 values were dropped, because they were not finite, or "
                        "there were too many names\n"));
}

TEST(StatusTextTest, SkippedStepsAreCountedWhereThereAreAny) {
  v1::ClusterStatus status = Training();
  EXPECT_THAT(StatusText(status, kUnlimitedColumns), Not(HasSubstr("SKIPPED")));
  status.mutable_shards(0)->set_contributions_skipped(42);
  const std::string text = StatusText(status, kUnlimitedColumns);
  EXPECT_THAT(text, HasSubstr("SKIPPED"));
  EXPECT_THAT(text, HasSubstr("42"));
}

TEST(StatusTextTest, AnAlarmThatIsOverIsSaidToBe) {
  v1::ClusterStatus status = Training();
  v1::Alarm* alarm = status.add_alarms();
  alarm->set_text("the disk is full");
  alarm->set_count(1);
  alarm->set_age_seconds(52);
  EXPECT_THAT(StatusText(status, kUnlimitedColumns),
              HasSubstr("\nALARM     the disk is full (1 time, 52s ago)\n"));
  alarm->set_count(2);
  EXPECT_THAT(StatusText(status, kUnlimitedColumns),
              HasSubstr("\nALARM     the disk is full (2 times, 52s ago)\n"));
  alarm->set_over_age_seconds(12);
  EXPECT_THAT(StatusText(status, kUnlimitedColumns),
              HasSubstr("\nALARM     the disk is full (2 times, 52s ago; over for 12s)\n"));
}

TEST(StatusTextTest, SaysNothingOfWhatIsNotThere) {
  v1::ClusterStatus status;
  status.set_state("waiting_for_workers");
  const std::string text = StatusText(status, kUnlimitedColumns);
  EXPECT_THAT(text, HasSubstr("\nloss      none yet; "));
  EXPECT_THAT(text, HasSubstr("no worker yet"));
  for (const char* label :
       {"\nspeed", "\ndiverged", "\nround", "\nsaved", "\nreplica", "ETA", "held-out"}) {
    EXPECT_THAT(text, Not(HasSubstr(label)));
  }
}

TEST(StatusTextTest, SaysWhyAWorkerIsGoneAndThatTheRunHasDiverged) {
  v1::ClusterStatus status = Training();
  EXPECT_THAT(StatusText(status, kUnlimitedColumns), Not(HasSubstr("diverged")));
  status.mutable_workers(1)->set_state("dropped");
  status.mutable_workers(1)->set_reason("dropped: it has sent NaN");
  status.mutable_workers(1)->set_ended_age_seconds(90);
  status.mutable_divergence()->set_text("diverged at round 20");
  status.mutable_divergence()->set_age_seconds(5);
  status.set_rollbacks(2);
  status.set_learning_rate_scale(0.25);
  const std::string text = StatusText(status, kUnlimitedColumns);
  EXPECT_THAT(text, HasSubstr("\nb  1m30s ago: dropped: it has sent NaN\n"));
  EXPECT_THAT(text, HasSubstr("\ndiverged  5s ago: diverged at round 20; rollbacks: 2\n"));
  EXPECT_THAT(text, HasSubstr(" (the schedule times 0.25)\n"));
  status.mutable_job()->mutable_schedule()->set_kind(v1::SCHEDULE_KIND_PROGRAM);
  EXPECT_THAT(StatusText(status, kUnlimitedColumns),
              HasSubstr("; learning rates of the programs (the schedule times 0.25)\n"));
}

TEST(StatusTextTest, SaysForHowLongAndWhyTheJobIsPaused) {
  v1::ClusterStatus status = Training();
  EXPECT_THAT(StatusText(status, kUnlimitedColumns), Not(HasSubstr("\npaused")));
  status.mutable_pause()->set_reason("the card is swapped");
  status.mutable_pause()->set_age_seconds(75);
  EXPECT_THAT(StatusText(status, kUnlimitedColumns),
              HasSubstr("\npaused    for 1m15s: the card is swapped\n"));
}

TEST(StatusTextTest, AJobThatWasResumedWithFewerRoundsThanItHasDoneIsNotPartOfThem) {
  v1::ClusterStatus status = Training();
  EXPECT_THAT(StatusText(status, kUnlimitedColumns), HasSubstr("training: round 21 of 60, "));
  status.set_total_rounds(10);
  EXPECT_THAT(StatusText(status, kUnlimitedColumns), HasSubstr(": round 21 (--rounds=10), "));
}

TEST(StatusTextTest, ExportAndStopNameTheJobTheServerAndTheRound) {
  v1::ExportSource source;
  source.set_model("tiny");
  source.set_round(20);
  source.set_total_rounds(20);
  source.set_is_over(true);
  EXPECT_EQ(ExportText(source, "h:1"), "the weights of job tiny at h:1 after 20 of 20 rounds");
  source.set_round(7);
  source.set_is_over(false);
  EXPECT_THAT(ExportText(source, "h:1"), HasSubstr("after 7 of 20 rounds, or of later ones"));
  source.set_total_rounds(5);
  EXPECT_THAT(ExportText(source, "h:1"), HasSubstr("after 7 rounds, or of later ones"));

  v1::StopReply reply;
  reply.set_model("tiny");
  reply.set_ending("stopped after 7 of 20 rounds");
  reply.set_saved_path("ck/round-00000007");
  EXPECT_EQ(StopText(reply, "h:1"),
            "job tiny at h:1: stopped after 7 of 20 rounds; checkpoint ck/round-00000007");
  reply.set_lost_rounds("rounds 7 to 9 were lost when shard 1 died");
  EXPECT_EQ(StopText(reply, "h:1"),
            "job tiny at h:1: stopped after 7 of 20 rounds; checkpoint ck/round-00000007; WARNING: "
            "rounds 7 to 9 were lost when shard 1 died");
  reply.clear_lost_rounds();
  reply.clear_saved_path();
  reply.set_not_saved("no --checkpoint_dir");
  EXPECT_THAT(StopText(reply, "h:1"), HasSubstr("; nothing is saved: no --checkpoint_dir"));
  reply.set_is_lost(true);
  EXPECT_THAT(StopText(reply, "h:1"), HasSubstr("; NOT SAVED: no --checkpoint_dir"));
  reply.set_saved_path("ck/round-00000007");
  reply.set_not_saved("exit code 3");
  EXPECT_THAT(StopText(reply, "h:1"),
              EndsWith("checkpoint ck/round-00000007; FAILED: exit code 3"));
}

TEST(StatusTextTest, WhatWasAskedForShowsUntilItComes) {
  v1::ClusterStatus status = Training();
  EXPECT_THAT(StatusText(status, kUnlimitedColumns), Not(HasSubstr("requested")));
  v1::PendingRequest* stop = status.add_requests();
  stop->set_what("stop");
  stop->set_reason("psctl stop");
  stop->set_age_seconds(12);
  EXPECT_THAT(StatusText(status, kUnlimitedColumns),
              HasSubstr("requested stop, 12s ago: psctl stop"));
}

}  // namespace
}  // namespace lodestar::wire

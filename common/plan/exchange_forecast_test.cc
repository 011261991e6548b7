// SPDX-License-Identifier: Apache-2.0

#include "common/plan/exchange_forecast.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/params/encoding.h"
#include "common/params/layout.h"
#include "common/params/model_spec.h"
#include "gmock/gmock.h"

namespace lodestar::plan {
namespace {

constexpr double kMegabit = 1e6 / 8;

ExchangeRates Instant() {
  constexpr ExchangeRates::Codec kInstant = {.encode = 1e30, .add = 1e30};
  return {.fp32 = kInstant,
          .half = kInstant,
          .int8 = kInstant,
          .int4 = kInstant,
          .topk2 = kInstant,
          .topk4 = kInstant,
          .apply = 1e30,
          .transport = 1e30,
          .round_overhead = absl::ZeroDuration()};
}

// There is only one bucket, so that parts of an exchange do not overlap.
constexpr int64_t kElements = 1'000'000;
ExchangeSizes OneBucket() {
  return {
      .num_servers = 1,
      .num_blocks = 1,
      .num_elements = kElements,
      .rounds = {
          {.elements = kElements, .buckets = 1, .push_bytes = 1'000'000, .pull_bytes = 4'000'000}}};
}

// Returns facts in which only two things take time: links, with 1 MB per second, and steps, with
// 0.1 s.
ExchangeFacts SlowLinks() {
  ExchangeFacts facts;
  facts.path = {.worker_up = 1e6, .worker_down = 1e6, .server_up = 1e9, .server_down = 1e9};
  facts.step = absl::Milliseconds(100);
  facts.worker_rates = Instant();
  facts.server_rates = Instant();
  return facts;
}

job::JobSpec LocalSgd(int local_steps) {
  job::JobSpec job;
  job.mode = job::Mode::kLocalSgd;
  job.local_steps = local_steps;
  return job;
}

double Seconds(const ExchangeForecast& forecast) { return absl::ToDoubleSeconds(forecast.round); }

// Times of one worker's transfers on links without a round trip.
struct Way {
  explicit Way(const ExchangeForecast& forecast)
      : push(forecast.bytes_up / 1e6), pull(forecast.bytes_down / 1e6) {}
  double push, pull;  // in seconds
};

TEST(ExchangeForecastTest, ARoundThatWaitsIsItsStepsAndItsExchange) {
  const ExchangeForecast forecast = ForecastExchange(LocalSgd(20), OneBucket(), SlowLinks());
  const Way way(forecast);
  EXPECT_NEAR(Seconds(forecast), 20 * 0.1 + way.push + way.pull, 1e-6);
  EXPECT_NEAR(forecast.utilisation(), 2.0 / Seconds(forecast), 1e-6);
  EXPECT_NEAR(absl::ToDoubleSeconds(forecast.exposed()), way.push + way.pull, 1e-6);
  EXPECT_NEAR(absl::ToDoubleSeconds(forecast.per_step()), Seconds(forecast) / 20, 1e-6);
  EXPECT_EQ(forecast.push, absl::Seconds(way.push));
  EXPECT_EQ(forecast.pull, absl::Seconds(way.pull));
}

TEST(ExchangeForecastTest, ASynchronousStepIsALocalStepWithoutARoundTripLess) {
  ExchangeFacts facts = SlowLinks();
  const double alone = Seconds(ForecastExchange(job::JobSpec(), OneBucket(), facts));
  EXPECT_NEAR(alone, Seconds(ForecastExchange(LocalSgd(1), OneBucket(), facts)), 1e-6);
  facts.path.round_trip = absl::Milliseconds(20);
  EXPECT_NEAR(Seconds(ForecastExchange(job::JobSpec(), OneBucket(), facts)), alone + 0.020, 1e-6);
  EXPECT_NEAR(Seconds(ForecastExchange(LocalSgd(1), OneBucket(), facts)), alone + 0.040, 1e-6);
}

TEST(ExchangeForecastTest, WithManyBucketsTransfersHideBehindBackwardAndForward) {
  ExchangeSizes sizes = OneBucket();
  sizes.rounds[0].buckets = 1000;
  job::JobSpec clipped;
  clipped.clip_norm = 1.0;
  const ExchangeForecast apart = ForecastExchange(clipped, sizes, SlowLinks());
  const Way way(apart);
  // The longer transfers hide the step, except for the time of one of the 1000 buckets.
  EXPECT_NEAR(Seconds(apart), way.push + way.pull, 1e-3);
}

// If a gradient is clipped, its norm is known only when the last bucket has arrived.
TEST(ExchangeForecastTest, WithoutClippingWeightsComeDownWhileGradientsGoUp) {
  ExchangeSizes sizes = OneBucket();
  sizes.rounds[0].buckets = 1000;
  sizes.rounds[0].push_bytes = sizes.rounds[0].pull_bytes;
  const ExchangeForecast even = ForecastExchange(job::JobSpec(), sizes, SlowLinks());
  const Way way(even);
  EXPECT_NEAR(Seconds(even), way.push + 0.67 * way.pull, 1e-2);
  // A part of the pull runs during the push. That part is at most as long as the push.
  sizes.rounds[0].push_bytes /= 10;
  const ExchangeForecast more_comes = ForecastExchange(job::JobSpec(), sizes, SlowLinks());
  EXPECT_NEAR(Seconds(more_comes), Way(more_comes).pull, 1e-2);
}

TEST(ExchangeForecastTest, AnOverlappedRoundIsTheLongerOfStepsAndExchange) {
  for (const int steps : {10, 40, 49, 55, 80}) {
    job::JobSpec job = LocalSgd(steps);
    job.overlap_rounds = true;
    const ExchangeForecast forecast = ForecastExchange(job, OneBucket(), SlowLinks());
    const Way way(forecast);
    EXPECT_NEAR(Seconds(forecast), std::max(steps * 0.1, way.push + way.pull), 1e-6) << steps;
  }
}

// A worker with weights of its own needs the pulled weights only for its next contribution.
TEST(ExchangeForecastTest, AnExchangeOfElasticWorkersHasAllTheSteps) {
  job::JobSpec elastic = LocalSgd(100);
  elastic.outer_optimizer = job::OuterOptimizerKind::kEasgd;
  job::JobSpec eager = LocalSgd(100);
  eager.overlap_rounds = true;
  eager.outer_optimizer = job::OuterOptimizerKind::kSgd;
  EXPECT_EQ(ForecastExchange(elastic, OneBucket(), SlowLinks()).round,
            ForecastExchange(eager, OneBucket(), SlowLinks()).round);
}

TEST(ExchangeForecastTest, OverlapHidesAsMuchAsItsStepsTake) {
  job::JobSpec job = LocalSgd(60);
  for (const int overlap : {0, 1, 10, 60}) {
    job.overlap_steps = overlap;
    // With overlap_steps, contributions are deferred even if this setting is false.
    job.overlap_rounds = false;
    if (overlap == 0) continue;
    const ExchangeForecast forecast = ForecastExchange(job, OneBucket(), SlowLinks());
    const Way way(forecast);
    EXPECT_NEAR(Seconds(forecast), 6.0 + std::max(0.0, way.push + way.pull - overlap * 0.1), 1e-6)
        << overlap;
  }
}

TEST(ExchangeForecastTest, NoRoundBeginsBeforeTheLastIsAcknowledgedAndReported) {
  job::JobSpec job = LocalSgd(2);
  job.overlap_rounds = true;
  ExchangeFacts facts = SlowLinks();
  facts.path = {.round_trip = absl::Seconds(1)};
  const ExchangeForecast forecast = ForecastExchange(job, OneBucket(), facts);
  EXPECT_NEAR(Seconds(forecast), absl::ToDoubleSeconds(forecast.push) + 2.0, 1e-6);
}

TEST(ExchangeForecastTest, TheLastAcknowledgementComesBehindTheWeightsOfTheOthers) {
  job::JobSpec job = LocalSgd(2);
  job.overlap_rounds = true;
  ExchangeFacts facts = SlowLinks();
  facts.num_workers = 3;
  facts.path = {.server_up = 1e6, .round_trip = absl::Seconds(20)};
  const ExchangeForecast forecast = ForecastExchange(job, OneBucket(), facts);
  const double weights_of_one = forecast.bytes_down / 1e6;
  EXPECT_NEAR(Seconds(forecast), absl::ToDoubleSeconds(forecast.push) + 2 * 20 + 2 * weights_of_one,
              1e-6);
}

TEST(ExchangeForecastTest, FragmentsAreTheMeanOfTheirCycle) {
  ExchangeSizes sizes = OneBucket();
  sizes.rounds = {{.elements = 10, .buckets = 1, .push_bytes = 1'000'000, .pull_bytes = 1},
                  {.elements = 10, .buckets = 1, .push_bytes = 3'000'000, .pull_bytes = 1}};
  job::JobSpec job = LocalSgd(5);
  job.fragments = 2;
  const ExchangeForecast forecast = ForecastExchange(job, sizes, SlowLinks());
  EXPECT_EQ(forecast.steps, 2.5);
  EXPECT_NEAR(forecast.bytes_up / 2e6, 1.04, 0.01);
  const Way way(forecast);
  EXPECT_NEAR(Seconds(forecast), 0.25 + way.push + way.pull, 1e-6);
}

TEST(ExchangeForecastTest, AllWorkersShareTheServersLinks) {
  ExchangeFacts facts = SlowLinks();
  facts.path.server_up = facts.path.server_down = 2e6;
  for (const job::JobSpec& job : {job::JobSpec(), LocalSgd(10)}) {
    facts.num_workers = 1;
    const ExchangeForecast one = ForecastExchange(job, OneBucket(), facts);
    facts.num_workers = 2;
    EXPECT_NEAR(Seconds(ForecastExchange(job, OneBucket(), facts)), Seconds(one), 1e-6);
    facts.num_workers = 8;
    const ExchangeForecast many = ForecastExchange(job, OneBucket(), facts);
    EXPECT_NEAR(absl::FDivDuration(many.push, one.push), 4.0, 1e-6);
    // The second server has links of its own.
    ExchangeSizes of_two = OneBucket();
    of_two.num_servers = 2;
    EXPECT_NEAR(absl::FDivDuration(ForecastExchange(job, of_two, facts).push, one.push), 2.0, 1e-6);
  }
}

// Two workers share the links of one server. In 0.7 of the jobs they are apart: the server sends
// the first worker's weights while the second worker's request is on its way. That takes at most a
// round trip. The first worker's next contribution comes earlier by the same time.
TEST(ExchangeForecastTest, WorkersThatWaitMayTakeTurnsOnTheServersLinks) {
  ExchangeFacts facts = SlowLinks();
  facts.path.server_up = facts.path.server_down = 1e6;
  facts.num_workers = 2;
  for (const double round_trip : {0.0, 0.3, 1.5}) {
    facts.path.round_trip = absl::Seconds(round_trip);
    const ExchangeForecast forecast = ForecastExchange(LocalSgd(20), OneBucket(), facts);
    const Way alone(forecast);
    const double together = 2 * alone.push + round_trip + 2 * alone.pull;
    const double apart = std::max(alone.push, 2 * alone.push - round_trip) +
                         std::max(alone.pull + round_trip, 2 * alone.pull);
    EXPECT_NEAR(Seconds(forecast), 2.0 + round_trip + 0.7 * apart + 0.3 * together, 1e-6)
        << round_trip;
  }
  // In sync all workers ask before they push, so they share the links from the beginning.
  const ExchangeForecast forecast = ForecastExchange(job::JobSpec(), OneBucket(), facts);
  const Way alone(forecast);
  EXPECT_NEAR(Seconds(forecast), 0.1 + 2 * alone.push + 1.5 + 2 * alone.pull, 1e-6);
}

TEST(ExchangeForecastTest, WhoWaitsForNobodyIsBoundByTheServersLinksAlone) {
  job::JobSpec job;
  job.mode = job::Mode::kAsync;
  ExchangeFacts facts = SlowLinks();
  const ExchangeForecast one = ForecastExchange(job, OneBucket(), facts);
  facts.path.server_up = facts.path.server_down = 10e6;
  facts.num_workers = 2;
  EXPECT_NEAR(Seconds(ForecastExchange(job, OneBucket(), facts)), Seconds(one), 1e-6);
  facts.num_workers = 100;
  // The server sends 4 MB to each of the 100 workers, over a link of 10 MB/s.
  EXPECT_NEAR(Seconds(ForecastExchange(job, OneBucket(), facts)), 100 * one.bytes_down / 10e6,
              1e-6);
}

TEST(ExchangeForecastTest, WhatMachinesDoToValuesTakesTime) {
  ExchangeFacts facts = SlowLinks();
  facts.path = {};
  job::JobSpec job = LocalSgd(1);
  job.push_encoding = params::Encoding::kInt4;
  const double instant = Seconds(ForecastExchange(job, OneBucket(), facts));
  facts.worker_rates.int4.encode = 4.0 * kElements;  // encoding takes one second
  EXPECT_NEAR(Seconds(ForecastExchange(job, OneBucket(), facts)), instant + 1.0, 1e-6);
  facts.worker_rates = facts.worker_rates.TimesThreads(4);
  EXPECT_NEAR(Seconds(ForecastExchange(job, OneBucket(), facts)), instant + 0.25, 1e-6);
  facts.worker_rates = Instant();
  facts.num_workers = 3;
  facts.server_rates.int4.add = 4.0 * kElements;  // time to add one contribution: one second
  EXPECT_NEAR(Seconds(ForecastExchange(job, OneBucket(), facts)), instant + 3.0, 1e-6);
  facts.server_rates = Instant();
  facts.worker_rates.round_overhead = absl::Seconds(1);
  EXPECT_NEAR(Seconds(ForecastExchange(job, OneBucket(), facts)), instant + 1.0, 1e-6);
}

// Makes every fact worse, for every kind of round.
TEST(ExchangeForecastTest, NothingThatIsSlowerMakesARoundFaster) {
  std::vector<job::JobSpec> jobs = {job::JobSpec(), LocalSgd(10)};
  jobs.push_back(LocalSgd(10));
  jobs.back().overlap_steps = 3;
  jobs.push_back(LocalSgd(10));
  jobs.back().overlap_rounds = true;
  jobs.push_back(LocalSgd(10));
  jobs.back().mode = job::Mode::kAsyncLocalSgd;
  ExchangeFacts base;
  base.num_workers = 4;
  base.path = {.worker_up = 10 * kMegabit,
               .worker_down = 20 * kMegabit,
               .server_up = 50 * kMegabit,
               .server_down = 30 * kMegabit,
               .round_trip = absl::Milliseconds(50),
               .packet_loss = 0.01};
  base.step = absl::Milliseconds(100);
  const std::vector<std::function<void(ExchangeFacts&)>> worse = {
      [](ExchangeFacts& facts) { facts.num_workers *= 2; },
      [](ExchangeFacts& facts) { facts.path.worker_up /= 2; },
      [](ExchangeFacts& facts) { facts.path.worker_down /= 2; },
      [](ExchangeFacts& facts) { facts.path.server_up /= 2; },
      [](ExchangeFacts& facts) { facts.path.server_down /= 2; },
      [](ExchangeFacts& facts) { facts.path.round_trip *= 2; },
      [](ExchangeFacts& facts) { facts.path.packet_loss *= 2; },
      [](ExchangeFacts& facts) { facts.step *= 2; },
      [](ExchangeFacts& facts) { facts.worker_rates = facts.worker_rates.TimesThreads(0.1); },
      [](ExchangeFacts& facts) { facts.server_rates = facts.server_rates.TimesThreads(0.1); },
  };
  for (const job::JobSpec& job : jobs) {
    const double before = Seconds(ForecastExchange(job, OneBucket(), base));
    for (size_t i = 0; i < worse.size(); ++i) {
      ExchangeFacts facts = base;
      worse[i](facts);
      EXPECT_GE(Seconds(ForecastExchange(job, OneBucket(), facts)), before * (1 - 1e-12))
          << NameOf(job.mode) << ", change " << i;
    }
    ExchangeSizes larger = OneBucket();
    larger.rounds[0].push_bytes *= 2;
    larger.rounds[0].pull_bytes *= 2;
    EXPECT_GT(Seconds(ForecastExchange(job, larger, base)), before);
  }
}

TEST(TransferTimeTest, IsThatOfTheLineOrOfTheFirstBurstsOfBbr) {
  NetworkPath path = {.round_trip = absl::ZeroDuration(), .packet_bytes = 1000};
  EXPECT_EQ(TransferTime(5e6, 5e6, 1e6, 1, path), absl::Seconds(5));
  path.round_trip = absl::Milliseconds(100);
  // The burst is longer than the round trip, so the sender knows the line's rate.
  EXPECT_EQ(TransferTime(5e6, 5e6, 1e6, 1, path), absl::Seconds(5));
  // The burst is shorter: it takes a round trip divided by the gain, however fast the line is.
  EXPECT_NEAR(absl::ToDoubleMilliseconds(TransferTime(5e5, 5e5, 1e9, 1, path)), 100 / 2.885, 1e-3);
  // The burst is a fifth of what the connection has carried before.
  EXPECT_NEAR(absl::ToDoubleMilliseconds(TransferTime(1e5, 5e5, 1e9, 1, path)), 20 / 2.885, 1e-3);
  // The burst is less than the initial window of ten packets.
  EXPECT_NEAR(absl::ToDoubleMilliseconds(TransferTime(5e3, 5e3, 1e9, 1, path)), 50 / 2.885, 1e-3);
}

TEST(TransferTimeTest, LostPacketsCostTheirShareOfTheLineAndATailThatIsRepaired) {
  NetworkPath path = {
      .round_trip = absl::Milliseconds(100), .packet_loss = 0.5, .packet_bytes = 1000};
  // In a long transfer, some packet at the end is always lost. Its repair takes 1.25 round trips.
  EXPECT_NEAR(absl::ToDoubleSeconds(TransferTime(1e9, 1e9, 1e6, 1, path)), 2000.125, 0.01);
  // Almost no packet is lost.
  path.packet_loss = 1e-9;
  EXPECT_NEAR(absl::ToDoubleSeconds(TransferTime(1e6, 1e9, 1e6, 1, path)), 1.0, 1e-6);
  // A tenth of the 1000 packets per second is lost. On average, the last lost packet is 10 ms
  // before the end.
  path.packet_loss = 0.1;
  EXPECT_NEAR(absl::ToDoubleSeconds(TransferTime(1e6, 1e9, 1e6, 1, path)), 1.0 / 0.9 + 0.114, 2e-3);
  EXPECT_GT(TransferTime(1e4, 1e9, 1e6, 8, path), TransferTime(1e4, 1e9, 1e6, 1, path));
}

// Bytes per round from tests/bench/results/scaling.md, with packets of 9000 bytes.
TEST(WireBytesTest, AreThoseThatDevicesHaveCounted) {
  constexpr int64_t kPacket = 9000;
  EXPECT_NEAR(WireBytes(3'337'216, 6, 3'337'216, kPacket) / 3'360'143, 1.0, 0.01);
  EXPECT_NEAR(WireBytes(847'340, 6, 847'340, kPacket) / 854'826, 1.0, 0.01);
  EXPECT_NEAR(WireBytes(430'188, 6, 430'188, kPacket) / 435'368, 1.0, 0.01);
  EXPECT_NEAR(WireBytes(107'547, 2, 107'547, kPacket) / 109'484, 1.0, 0.01);
}

// gpt2-124m in int4, two workers, links of 100 Mbit/s and 50 ms, 80 steps of 0.3 s per round.
// Source: tests/bench/results/low_communication.md. The two workers and the server share two
// threads.
TEST(ExchangeForecastTest, ForecastsTheUtilisationThatWasMeasured) {
  const params::Layout layout = *params::BuildLayout(*params::ModelPreset("gpt2-124m"));
  job::JobSpec job = LocalSgd(80);
  job.push_encoding = job.pull_encoding = params::Encoding::kInt4;
  ExchangeFacts facts;
  facts.num_workers = 2;
  facts.path = {.worker_up = 100 * kMegabit,
                .worker_down = 100 * kMegabit,
                .server_up = 100 * kMegabit,
                .server_down = 100 * kMegabit,
                .round_trip = absl::Milliseconds(50),
                .packet_bytes = 9000};
  facts.step = absl::Milliseconds(300);
  const ExchangeSizes whole = *PlanExchangeSizes(job, layout, 1);
  EXPECT_NEAR(ForecastExchange(job, whole, facts).utilisation(), 0.529, 0.02);
  job.overlap_rounds = true;
  EXPECT_NEAR(ForecastExchange(job, whole, facts).utilisation(), 0.966, 0.03);
  job.overlap_rounds = false;
  job.fragments = 4;
  job.overlap_steps = 20;
  const ExchangeSizes cut = *PlanExchangeSizes(job, layout, 1);
  EXPECT_NEAR(ForecastExchange(job, cut, facts).utilisation(), 0.966, 0.03);
}

}  // namespace
}  // namespace lodestar::plan

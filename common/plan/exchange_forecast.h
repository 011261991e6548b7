// SPDX-License-Identifier: Apache-2.0

// Forecasts how long the rounds of a job take over a given network, before the job runs. Uses the
// sizes of messages, the paths between workers and servers, the time of a step, and measured rates
// of this code. Pure. Used by `psctl plan`, and by servers that choose settings themselves.
//
// A round has a worker's local steps, a push, a pull, the work of workers and servers on the
// values, and round trips. The mode decides which parts run at the same time:
//
// - sync: step, push, half a round trip, apply, half a round trip, pull. The push runs during the
//   backward pass. The pull runs during the forward pass.
// - local_sgd: H steps, push, two round trips, pull. Each worker also waits for its turn on the
//   servers' links.
// - local_sgd with fragments, overlap_steps or overlap_rounds: the exchange runs during
//   overlap_steps of the steps, with overlap_rounds during all steps. Then the other steps run. A
//   round begins only after the last contribution is acknowledged and reported. That takes two
//   round trips, and the time in which the servers send weights to the other workers.
// - async: as local_sgd, but no worker waits for another. The servers' links limit all workers
//   together.
//
// Not included: evaluations, checkpoints, workers of unequal speed, and other traffic on the paths.
#pragma once

#include <cstdint>
#include <limits>

#include "absl/time/time.h"
#include "common/job/job_spec.h"
#include "common/params/encoding.h"
#include "common/plan/exchange_sizes.h"

namespace lodestar::plan {

// The path between each worker and the servers. Rates are in bytes per second. If each worker's
// rate was measured while all workers exchanged (PathFacts), it is already the worker's share. The
// rates of the servers' links are then kNoLimit.
struct NetworkPath {
  static constexpr double kNoLimit = std::numeric_limits<double>::infinity();

  double worker_up = kNoLimit;    // speed of each worker's sending
  double worker_down = kNoLimit;  // speed of each worker's receiving
  double server_up = kNoLimit;    // speed of each server's sending, which all workers share
  double server_down = kNoLimit;
  absl::Duration round_trip = absl::ZeroDuration();
  double packet_loss = 0.0;     // share of lost packets on the path, in each direction
  int64_t packet_bytes = 1500;  // MTU of the path
};

// Speeds at which a machine processes values. They were measured with one thread of an AMD EPYC
// (Zen 5), with data in main memory. Other machines differ, and more threads are faster.
struct ExchangeRates {
  // Rates in bytes of fp32 per second. Source: tests/bench/results/encodings.md, rows of 64 MiB.
  // fp16 was not measured, and is assumed to be like bf16.
  struct Codec {
    double encode = 0.0;  // includes the residual of error feedback; fp32 is sent without encoding
    double add = 0.0;     // adding decoded values to a sum
  };
  Codec fp32 = {.encode = 1e12, .add = 11.03 * kGiB};
  Codec half = {.encode = 2.09 * kGiB, .add = 8.65 * kGiB};
  Codec int8 = {.encode = 2.15 * kGiB, .add = 10.42 * kGiB};
  Codec int4 = {.encode = 2.10 * kGiB, .add = 10.16 * kGiB};
  Codec topk2 = {.encode = 1.44 * kGiB, .add = 17.67 * kGiB};
  Codec topk4 = {.encode = 1.24 * kGiB, .add = 9.30 * kGiB};
  // Bytes of weights, gradients and optimizer state that an update reads and writes per second.
  // Source: tests/bench/results/apply.md.
  double apply = 40e9;
  // Maximum rate of one worker's or server's own network code, in bytes per second, with TLS.
  // Source: tests/bench/results/data_path.md, 100 MB.
  double transport = 1.2e9;
  // Part of a round's time that does not depend on the model: messages, waking threads, grants.
  absl::Duration round_overhead = absl::Milliseconds(3);

  static constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;

  const Codec& Of(params::Encoding encoding) const;
  // Returns these rates with all codec rates multiplied by `threads`.
  ExchangeRates TimesThreads(double threads) const;
};

struct ExchangeFacts {
  int num_workers = 1;
  NetworkPath path;
  absl::Duration step;  // one local step, including the inner optimizer if there is one
  ExchangeRates worker_rates;
  ExchangeRates server_rates;
};

// Means over the rounds of a cycle, in which each fragment has one round. Connections have reached
// their full speed.
struct ExchangeForecast {
  absl::Duration round;     // from the beginning of a round to the beginning of the next
  absl::Duration computed;  // time of the steps in `round`
  double steps = 1.0;       // local steps per round
  // Bytes of one worker in one round, including headers and control messages.
  double bytes_up = 0.0;
  double bytes_down = 0.0;
  // Duration of each transfer, without its round trip.
  absl::Duration push;
  absl::Duration pull;

  absl::Duration exposed() const { return round - computed; }
  absl::Duration per_step() const { return round / steps; }
  // Returns the share of a round in which a worker computes.
  double utilisation() const { return absl::FDivDuration(computed, round); }
};

// Returns the forecast. `sizes` is PlanExchangeSizes() of the same job. Requires: `job` has passed
// ValidateJobSpec(), rates of `facts` are above 0, and num_workers is at least 1.
ExchangeForecast ForecastExchange(const job::JobSpec& job, const ExchangeSizes& sizes,
                                  const ExchangeFacts& facts);

// Returns how long a transfer of `bytes` takes, from the first byte sent to the last byte received,
// without half a round trip. `most_bytes` is the largest earlier transfer on the connection.
// `line_rate` is in bytes per second. If packets are lost, the result includes the delay until the
// last of `flows` transfers of this size ends.
//
// A sender with BBR knows a path's rate only from its own bursts. If a burst is shorter than the
// round trip, the sender estimates the rate as burst / round trip. Below the path's limit it sends
// at 2.885 times the estimate (BBR's startup gain, 2 / ln 2). So a burst takes at least round trip
// / 2.885, even on a fast line. The estimate never falls. So a transfer that is smaller than the
// largest earlier one takes proportionally less time.
absl::Duration TransferTime(double bytes, double most_bytes, double line_rate, int flows,
                            const NetworkPath& path);

// Returns the bytes that network devices count in one direction: `payload_bytes` in `messages`
// messages, the acknowledgements of `answered_bytes` from the other direction, and the control
// messages of one round.
double WireBytes(double payload_bytes, double messages, double answered_bytes,
                 int64_t packet_bytes);

}  // namespace lodestar::plan

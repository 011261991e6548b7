// SPDX-License-Identifier: Apache-2.0

// Forecasts how long the rounds of a job take over a given network, before the job runs. The
// forecast uses the sizes of messages, the paths between workers and servers, the time of a step,
// and measured rates of this code. It is pure. `psctl plan` uses it, and so do servers that choose
// settings themselves.
//
// A round has a worker's steps, two transfers, the processing of values on both sides, and round
// trips. The mode decides which parts run at the same time:
//
//   sync         step | push, half a trip | apply | half a trip, pull
//                push runs during backward, pull during forward
//   local_sgd    H steps | push, a round trip | a round trip, pull
//                workers wait in the trips until it is their turn on the servers' links
//   ... with fragments, overlap_steps=T or overlap_rounds: the exchange of a round together with
//                T of its steps; then the other steps. A round begins only after the contribution
//                to the last round is acknowledged and reported: two round trips, and the time in
//                which servers send the weights of the other workers
//   async        as local_sgd, but no worker waits for another: the servers' links limit all
//                workers together
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

// The path of every worker. Rates are in bytes per second. If a worker's path was measured while
// all workers exchanged (PathFacts), the rate is already the worker's share. The rates of the
// servers' links are then kNoLimit.
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

// Speeds at which machines process values. The numbers were measured with one thread of an AMD EPYC
// (Zen 5), with data in main memory. Other machines differ, and more threads are faster.
struct ExchangeRates {
  // Bytes of fp32 per second. Source: tests/bench/results/encodings.md, rows of 64 MiB. fp16 was
  // not measured. It is assumed to be like bf16.
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
  // Bytes of weights, gradients and optimizer state per second. Source:
  // tests/bench/results/apply.md.
  double apply = 40e9;
  // Network bytes per second at one end, including TLS. Source: tests/bench/results/data_path.md,
  // 100 MB.
  double transport = 1.2e9;
  // Time of a round that does not depend on the model: messages, waking threads, grants.
  absl::Duration round_overhead = absl::Milliseconds(3);

  static constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;

  const Codec& Of(params::Encoding encoding) const;
  // Returns the rates with `threads` threads.
  ExchangeRates TimesThreads(double threads) const;
};

struct ExchangeFacts {
  int num_workers = 1;
  NetworkPath path;
  absl::Duration step;  // one local step, including the inner optimizer if there is one
  ExchangeRates worker_rates;
  ExchangeRates server_rates;
};

// Means over the rounds of a cycle, after connections have reached their speed.
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
  // Returns the share of the time in which a worker computes.
  double utilisation() const { return absl::FDivDuration(computed, round); }
};

// Returns the forecast. `sizes` is PlanExchangeSizes() of the same job. Requires: `job` has passed
// ValidateJobSpec(), rates of `facts` are above 0, and num_workers is at least 1.
ExchangeForecast ForecastExchange(const job::JobSpec& job, const ExchangeSizes& sizes,
                                  const ExchangeFacts& facts);

// Returns how long a transfer of `bytes` takes, from the first byte sent to the last byte received,
// without half a round trip. `most_bytes` is the largest transfer that the connection has carried
// before. `line_rate` is in bytes per second. `flows` transfers of this size must all end, which
// matters for packet loss.
//
// A sender with BBR knows a path's rate only from its own bursts. If a burst is shorter than the
// round trip, the sender estimates the rate as burst / round trip. Below the path's limit it sends
// at 2.885 times the estimated rate (BBR's startup gain, 2 / ln 2). So a burst takes at least round
// trip / 2.885, however fast the line is. The estimate never falls. So a transfer that is smaller
// than the largest earlier burst takes proportionally less time.
absl::Duration TransferTime(double bytes, double most_bytes, double line_rate, int flows,
                            const NetworkPath& path);

// Returns the bytes that network devices count for `payload_bytes` in `messages` messages,
// including acknowledgements for `answered_bytes` of the other direction, and the control messages
// of one round.
double WireBytes(double payload_bytes, double messages, double answered_bytes,
                 int64_t packet_bytes);

}  // namespace lodestar::plan

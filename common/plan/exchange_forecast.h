// How long the rounds of a job take over a given network, before it runs. The forecast is made from
// the sizes of what travels, the paths between workers and servers, the time of a step, and
// measured rates of this code. It is pure. `psctl plan` uses it, and so do servers that choose
// settings themselves.
//
// A round is made of a worker's steps, of two transfers, of what both sides do to the values, and
// of round trips; what of it is hidden behind what depends on the mode:
//
//   sync         step | push, half a trip | apply | half a trip, pull
//                push and pull hide behind backward and forward
//   local_sgd    H steps | push, a round trip | a round trip, pull
//                workers whose turn on the servers' links has not come wait in the trips
//   ... with fragments, overlap_steps=T or overlap_rounds: the exchange of a round and T of its
//                steps, at once; then the other steps. And no round begins before the contribution
//                to the last one is acknowledged and reported: two round trips, and the time in
//                which servers send the weights of the other workers
//   async        as local_sgd, but no worker waits for another: the servers' links bound all of
//   them
//                together
//
// What is not in it: evaluations, checkpoints, workers of unequal speed, and paths that others use.
#pragma once

#include <cstdint>
#include <limits>

#include "absl/time/time.h"
#include "common/job/job_spec.h"
#include "common/params/encoding.h"
#include "common/plan/exchange_sizes.h"

namespace lodestar {

// The path is that of all workers alike. Rates are in bytes per second. What was measured of a
// worker's path while all of them exchanged (PathFacts) is its share already: the servers' links
// have no limit then.
struct NetworkPath {
  static constexpr double kNoLimit = std::numeric_limits<double>::infinity();

  double worker_up = kNoLimit;    // of each worker's link
  double worker_down = kNoLimit;  // ... to it
  double server_up = kNoLimit;    // of each server's link, which all workers share
  double server_down = kNoLimit;
  absl::Duration round_trip = absl::ZeroDuration();
  double packet_loss = 0.0;     // share of the packets of a path, in each direction
  int64_t packet_bytes = 1500;  // the path's MTU
};

// What the machines do to values. Measured on an AMD EPYC (Zen 5), one thread, from memory; other
// machines differ, and those with more threads are faster.
struct ExchangeRates {
  // Bytes of fp32 per second. Source: tests/bench/results/encodings.md, rows of 64 MiB; fp16, which
  // is not measured, as bf16.
  struct Codec {
    double encode = 0.0;  // with the residual of error feedback; fp32 travels as it lies
    double add = 0.0;     // sum += decoded
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
  // Bytes on the wire per second of one end, TLS included. Source:
  // tests/bench/results/data_path.md, 100 MB.
  double transport = 1.2e9;
  // What a round takes beside all that grows with the model: messages, threads that are woken,
  // grants.
  absl::Duration round_overhead = absl::Milliseconds(3);

  static constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;

  const Codec& Of(Encoding encoding) const;
  // Returns the rates with `threads` threads.
  ExchangeRates TimesThreads(double threads) const;
};

struct ExchangeFacts {
  int num_workers = 1;
  NetworkPath path;
  absl::Duration step;  // one local step, with an inner optimizer where there is one
  ExchangeRates worker_rates;
  ExchangeRates server_rates;
};

// The mean of the rounds of a cycle, once connections have found their pace.
struct ExchangeForecast {
  absl::Duration round;     // from the beginning of one to that of the next
  absl::Duration computed;  // of it: steps
  double steps = 1.0;       // local steps of a round
  // The bytes of one worker in one round, headers and control messages included.
  double bytes_up = 0.0;
  double bytes_down = 0.0;
  // What one transfer takes on its way, without its round trip.
  absl::Duration push;
  absl::Duration pull;

  absl::Duration exposed() const { return round - computed; }
  absl::Duration per_step() const { return round / steps; }
  // Share of the time in which a worker computes.
  double utilisation() const { return absl::FDivDuration(computed, round); }
};

// `sizes`: PlanExchangeSizes() of the same job. `job` must have passed ValidateJobSpec(); rates of
// `facts` must be above 0, and num_workers at least 1.
ExchangeForecast ForecastExchange(const JobSpec& job, const ExchangeSizes& sizes,
                                  const ExchangeFacts& facts);

// How long `bytes` are on their way over a connection that has carried `most_bytes` at once before,
// from the first byte that leaves to the last that arrives, without half a round trip.
// `line_rate`: bytes per second. `flows`: such transfers that all must be over, for what packet
// loss costs.
//
// A sender by bbr knows a path's rate only from what it has sent: bursts that are shorter than the
// round trip make it believe in burst / round trip, and while it has not met the path's limit it
// sends at 2.885 times that (BBR's startup gain, 2 / ln 2), so that a burst takes at least the
// round trip / 2.885, whatever the line carries. It does not slow down again, so that what is
// smaller than the largest burst before takes that much less.
absl::Duration TransferTime(double bytes, double most_bytes, double line_rate, int flows,
                            const NetworkPath& path);

// Payload in `messages` messages as the network's devices count it, with the acknowledgements of
// `answered_bytes` that come the other way, and the control messages of one round.
double WireBytes(double payload_bytes, double messages, double answered_bytes,
                 int64_t packet_bytes);

}  // namespace lodestar

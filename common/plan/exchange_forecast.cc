// SPDX-License-Identifier: Apache-2.0

#include "common/plan/exchange_forecast.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>

#include "common/job/fragment_plan.h"
#include "common/runtime/ids.h"

namespace lodestar::plan {
namespace {

// Size of the headers of a packet: IPv4, and TCP with time stamps.
constexpr double kPacketHeaderBytes = 52.0;
// TCP acknowledges every other packet.
constexpr double kPacketsPerAcknowledgement = 2.0;
// Size of a chunk's header with the HTTP/2 frames around it, and maximum payload of a chunk.
constexpr double kChunkHeaderBytes = 100.0;
constexpr double kChunkBytes = 1 << 20;
// Bytes that a round sends in each direction besides its payload: grant, report, heartbeat,
// beginning and end of two calls. Measured in tests/bench/results/scaling.md ("Bytes per round in
// the wire encodings").
constexpr double kControlBytes = 1500.0;

constexpr double kStartupGain = 2.885;        // bbr_high_gain of Linux
constexpr double kInitialWindowPackets = 10;  // RFC 6928
// Largest burst of a connection's first transfer, as a share of the transfer. The burst is what one
// round trip carries. Measured: 1.65 of 3.34 MB.
constexpr double kShareOfLastRoundTrip = 0.5;
// Number of round trips that a lost packet costs. The loss is noticed a quarter of a round trip
// after the acknowledgement of later packets (RFC 8985, reordering window). The repair takes one
// round trip.
constexpr double kRoundTripsPerLoss = 1.25;

// Time that a lost packet costs if no packet follows it (RFC 8985, tail loss probe of Linux). It is
// sent again after two round trips and 200 ms, in which the sender waits for a delayed
// acknowledgement. Later data takes one more round trip, because the connection begins again with a
// small window.
constexpr double kProbeRoundTrips = 3.0;
constexpr double kProbeSeconds = 0.2;

// Share of the jobs in which waiting workers use the servers' links one after the other instead of
// together. Measured in 40 jobs, after 20 rounds, on links of 100 Mbit/s and 50 or 150 ms.
constexpr double kShareApart = 0.7;

// Share of a pull that arrives during the push, if clipping does not delay the pull. Measured with
// six buckets over two connections: 0.2 to 0.4.
constexpr double kPulledBesidePush = 0.33;

// Shares of a step's time. A backward pass takes twice as long as a forward pass.
constexpr double kForward = 1.0 / 3.0;
constexpr double kBackward = 2.0 / 3.0;

constexpr double kFp32Bytes = sizeof(float);

// Returns how long `parts` equal parts take to pass all `stages` one after the other. The time of a
// stage is its time for all parts. A stage handles one part at a time. The slowest stage never
// pauses. Each other stage adds only its time for one part.
double Pipeline(double parts, std::initializer_list<double> stages) {
  double sum = 0.0;
  double slowest = 0.0;
  for (const double stage : stages) {
    sum += stage;
    slowest = std::max(slowest, stage);
  }
  return slowest + (sum - slowest) / std::max(parts, 1.0);
}

// Returns the expected delay that lost packets cause at the end of some transfers. The transfers
// take `seconds` and have `packets` packets together. A packet is lost with probability `loss`, and
// then arrives `repair` seconds later. Early losses are repaired during the transfers, so only the
// last loss counts. Its distance from the end is exponentially distributed.
double ExpectedTail(double seconds, double packets, double loss, double repair) {
  if (loss == 0.0 || repair == 0.0 || seconds == 0.0) return 0.0;
  const double per_second = packets * loss / seconds;
  const double window = std::min(seconds, repair);
  const double none = std::exp(-per_second * window);
  return repair * (1.0 - none) - ((1.0 - none) / per_second - window * none);
}

// The time of a transfer; see TransferTime().
struct Transfer {
  double seconds = 0.0;
  double tail = 0.0;  // expected delay by lost packets after `seconds`

  double all() const { return seconds + tail; }
};

Transfer TransferOf(double bytes, double most_bytes, double line_rate, int flows,
                    const NetworkPath& path) {
  const double round_trip = absl::ToDoubleSeconds(path.round_trip);
  const double line_seconds = bytes / line_rate / (1.0 - path.packet_loss);
  const double estimated = round_trip / kStartupGain * bytes / most_bytes;
  const auto packet_bytes = static_cast<double>(path.packet_bytes);
  const double first_window =
      round_trip * bytes / (kStartupGain * kInitialWindowPackets * packet_bytes);
  const double seconds = std::max(line_seconds, std::min(estimated, first_window));
  const double tail = ExpectedTail(seconds, flows * bytes / packet_bytes, path.packet_loss,
                                   kRoundTripsPerLoss * round_trip);
  return {seconds, tail};
}

// Returns the bytes of memory that the update of one parameter reads and writes (apply.md).
double BytesPerUpdate(const job::JobSpec& job) {
  if (job::HasLocalSteps(job)) {
    switch (job.outer_optimizer) {
      case job::OuterOptimizerKind::kAverage:
        return 8;
      case job::OuterOptimizerKind::kSgd:
      case job::OuterOptimizerKind::kEasgd:
        return 12;
      case job::OuterOptimizerKind::kNesterov:
        return 20;
      case job::OuterOptimizerKind::kAdam:
        return 28;
    }
  }
  switch (job.optimizer.kind) {
    case job::OptimizerKind::kReduce:
      return 8;
    case job::OptimizerKind::kSgd:
      return 12;
    case job::OptimizerKind::kMomentum:
    case job::OptimizerKind::kNesterov:
      return 20;
    case job::OptimizerKind::kAdamW:
      return 28;
  }
  return 28;
}

// Times in seconds of the parts of a round.
class RoundTimes {
 public:
  RoundTimes(const job::JobSpec& job, const ExchangeSizes& sizes, const RoundSizes& round,
             const ExchangeFacts& facts)
      : job_(job), facts_(facts), parts_(1.0 * round.buckets / sizes.num_servers) {
    const double fp32 = kFp32Bytes * static_cast<double>(round.elements);
    const double servers = sizes.num_servers;
    const int workers = facts.num_workers;
    const NetworkPath& path = facts.path;
    const auto messages = [&](int64_t payload) {
      return std::max(static_cast<double>(round.buckets),
                      static_cast<double>(payload) / kChunkBytes);
    };
    const auto wire = [&](int64_t payload, int64_t answered) {
      return WireBytes(static_cast<double>(payload), messages(payload),
                       static_cast<double>(answered), path.packet_bytes);
    };
    bytes_up_ = wire(round.push_bytes, round.pull_bytes);
    bytes_down_ = wire(round.pull_bytes, round.push_bytes);

    // `sharing` is the number of workers that exchange at the same time. line() returns the rate of
    // one transfer while `flows` transfers run.
    const double sharing = job::HasRosters(job) ? workers : 1.0;
    const auto line = [&](double of_worker, double of_server, double flows) {
      return std::min({of_worker, servers * of_server / flows, facts.worker_rates.transport,
                       servers * facts.server_rates.transport / flows});
    };
    const auto transfer = [&](double bytes, double most_bytes, double of_worker, double of_server,
                              double flows) {
      return TransferOf(bytes, most_bytes, line(of_worker, of_server, flows),
                        static_cast<int>(sharing), path);
    };
    push_alone_ = transfer(bytes_up_, bytes_up_, path.worker_up, path.server_down, 1.0);
    push = transfer(bytes_up_, bytes_up_, path.worker_up, path.server_down, sharing);
    // A worker's first pull transfers all parameters in fp32.
    const double first_pull =
        kShareOfLastRoundTrip * kFp32Bytes * static_cast<double>(sizes.num_elements);
    const double most_pulled = std::max(first_pull, bytes_down_);
    pull_alone_ = transfer(bytes_down_, most_pulled, path.worker_down, path.server_up, 1.0);
    pull = transfer(bytes_down_, most_pulled, path.worker_down, path.server_up, sharing);
    served_ = std::max(workers * bytes_up_ / (servers * path.server_down),
                       workers * bytes_down_ / (servers * path.server_up));
    others_pull_ = (sharing - 1.0) * bytes_down_ / (servers * path.server_up);

    encode_ = fp32 / facts.worker_rates.Of(job.push_encoding).encode;
    decode_ = fp32 / facts.worker_rates.Of(job.pull_encoding).add;
    const double of_server = fp32 / servers;
    // The server adds one contribution of each worker that exchanges at the same time.
    add_ = sharing * of_server / facts.server_rates.Of(job.push_encoding).add;
    apply_ = of_server / kFp32Bytes * BytesPerUpdate(job) / facts.server_rates.apply +
             of_server / facts.server_rates.Of(job.pull_encoding).encode;
    // A worker subtracts vectors before it contributes, and merges vectors after an exchange. Each
    // of these two operations reads or writes three vectors.
    constexpr double kVectors = 3.0;
    vectors_ = kVectors * fp32 / facts.worker_rates.apply;
    overhead_ = absl::ToDoubleSeconds(facts.worker_rates.round_overhead);
    probe_ = kProbeRoundTrips * absl::ToDoubleSeconds(path.round_trip) + kProbeSeconds;
    losers_ = sharing * path.packet_loss;
    step_ = absl::ToDoubleSeconds(facts.step);
    round_trip_ = absl::ToDoubleSeconds(path.round_trip);
  }

  // Returns the time of a round with `steps` local steps.
  double Round(int steps) const {
    if (!job::HasLocalSteps(job_)) return job::HasRosters(job_) ? Synchronous() : Alone(1);
    if (job::DefersContributions(job_)) return Overlapped(steps);
    return job::HasRosters(job_) ? Waiting(steps) : Alone(steps);
  }

  double bytes_up() const { return bytes_up_; }
  double bytes_down() const { return bytes_down_; }
  Transfer push;
  Transfer pull;

 private:
  // Returns the time of a round in sync. Buckets are pushed as the backward pass computes them,
  // last layers first. The forward pass begins when the first layers' weights have arrived.
  double Synchronous() const {
    const double pushed = Pipeline(parts_, {kBackward * step_ + encode_, push.all(), add_});
    return pushed + round_trip_ +
           Pipeline(parts_, {apply_, PullBehindPush(pushed), decode_, kForward * step_}) +
           overhead_ + LostPackets(kEndsOfTransfers);
  }
  // Returns the time of the part of the pull that comes after the push, which takes `pushed`. With
  // clipping, the whole pull waits for the norm of all buckets. Without clipping, a bucket's
  // weights arrive as soon as its contributions are complete (worker/trainer/pull_order.h).
  double PullBehindPush(double pushed) const {
    if (job_.clip_norm > 0.0) return pull.all();
    const double first = (kBackward * step_ + encode_ + push.all() + add_) / std::max(parts_, 1.0);
    return pull.all() - std::min(kPulledBesidePush * pull.all(), pushed - first);
  }
  // Returns the time of a round without overlap. A worker asks for new weights only after its
  // contribution is acknowledged, because the weights may overwrite the contribution. Meanwhile the
  // servers apply the contributions. There are two cases, and kShareApart is the share of the
  // first:
  // - Apart: one worker pushes and asks later than the others, by `drift`. It shares the servers'
  //   links less. Measured drifts are a round trip with two workers, and a third of one with four.
  // - Together: all workers share the servers' links all the time.
  double Waiting(int steps) const {
    const double drift = round_trip_ / std::max(facts_.num_workers - 1, 1);
    const double last_push = std::max(push_alone_.all(), push.all() - drift);
    const double apply = Pipeline(parts_, {apply_});
    const double asked = std::max(round_trip_, apply);
    const auto pushed = [this](double seconds) {
      return Pipeline(parts_, {encode_, seconds, add_});
    };
    const auto pulled = [this](double begin, const Transfer& transfer) {
      return begin + Pipeline(parts_, {transfer.all(), decode_, kForward * step_});
    };
    const double apart =
        pushed(last_push) + std::max(pulled(asked, pull_alone_), pulled(apply, pull));
    const double together = pushed(push.all()) + pulled(asked, pull);
    return Computing(steps) + kShareApart * apart + (1.0 - kShareApart) * together + round_trip_ +
           vectors_ + overhead_ + LostPackets(kEndsOfTransfers + kMessages);
  }
  // Returns the time of a round in which no worker waits for other workers. The servers' links
  // still limit all workers together.
  double Alone(int steps) const {
    return std::max(served_, Waiting(steps) + (job::HasLocalSteps(job_) ? 0.0 : -vectors_));
  }
  // Returns the time of `steps` local steps without the first forward pass. Waiting() adds that
  // pass, because it runs while the weights arrive.
  double Computing(int steps) const { return (steps - kForward) * step_; }
  // Returns the time of a round whose exchange overlaps with local steps. Contributions leave and
  // weights arrive bucket by bucket, in the same order. A lost packet costs time only if its repair
  // takes longer than the work that runs meanwhile.
  double Overlapped(int steps) const {
    const bool hides_all = job_.overlap_rounds || job::IsElastic(job_);
    const int hidden = hides_all ? steps : std::min(job_.overlap_steps, steps);
    const double other_steps = (steps - hidden) * step_;
    const double exchanged =
        round_trip_ +
        Pipeline(parts_, {encode_, push.seconds, add_, apply_, pull.seconds, decode_}) +
        other_steps;
    // The contribution is acknowledged, then reported in the request for the next grant. The last
    // worker's answer waits until the servers have sent the weights of all other workers.
    const double acknowledged =
        Pipeline(parts_, {encode_, push.seconds, add_}) + others_pull_ + 2 * round_trip_;
    const double round = std::max({encode_ + steps * step_, exchanged, acknowledged});
    const auto beyond = [round](double end, double later) {
      return std::max(0.0, end + later - round);
    };
    constexpr int kOfAcknowledgement = 1 + 3;  // end of the push, and three messages
    constexpr int kOfExchange = 1 + 2;  // request of the pull, and its ends on two connections
    return round + beyond(acknowledged, push.tail) + beyond(exchanged, pull.tail) +
           losers_ * (kOfAcknowledgement * beyond(acknowledged, probe_) +
                      kOfExchange * beyond(exchanged, probe_)) +
           2 * vectors_ + overhead_;
  }

  // Returns the expected delay if each worker sends `packets` packets that no packet follows, and
  // some of them are lost.
  double LostPackets(int packets) const { return packets * losers_ * probe_; }

  // Numbers of packets that a round waits for and that no packet follows. kEndsOfTransfers counts
  // the last packets of push and pull. kMessages counts the acknowledgement, the request for new
  // weights, the request for the next grant, and the answer to that request.
  static constexpr int kEndsOfTransfers = 2;
  static constexpr int kMessages = 4;

  const job::JobSpec& job_;
  const ExchangeFacts& facts_;
  const double parts_;
  double bytes_up_ = 0.0;
  double bytes_down_ = 0.0;
  Transfer push_alone_;
  Transfer pull_alone_;
  // All times are in seconds.
  double served_ = 0.0;       // time of the servers' links for a round of all workers
  double others_pull_ = 0.0;  // time of the servers' links for the weights of all workers but one
  double encode_ = 0.0;
  double decode_ = 0.0;
  double add_ = 0.0;
  double apply_ = 0.0;  // time of applying the update and of encoding the changes
  double vectors_ = 0.0;
  double overhead_ = 0.0;
  double probe_ = 0.0;   // time until a lost packet that no packet follows is sent again
  double losers_ = 0.0;  // expected number of workers that lose a given packet
  double step_ = 0.0;
  double round_trip_ = 0.0;
};

}  // namespace

const ExchangeRates::Codec& ExchangeRates::Of(params::Encoding encoding) const {
  switch (encoding.kind()) {
    case params::Encoding::Kind::kFp32:
      return fp32;
    case params::Encoding::Kind::kBf16:
    case params::Encoding::Kind::kFp16:
      return half;
    case params::Encoding::Kind::kInt8:
      return int8;
    case params::Encoding::Kind::kInt4:
      return int4;
    case params::Encoding::Kind::kTopK2:
      return topk2;
    case params::Encoding::Kind::kTopK4:
      return topk4;
  }
  return fp32;
}

ExchangeRates ExchangeRates::TimesThreads(double threads) const {
  ExchangeRates faster = *this;
  for (Codec* codec :
       {&faster.fp32, &faster.half, &faster.int8, &faster.int4, &faster.topk2, &faster.topk4}) {
    codec->encode *= threads;
    codec->add *= threads;
  }
  return faster;
}

double WireBytes(double payload_bytes, double messages, double answered_bytes,
                 int64_t packet_bytes) {
  const double per_packet = static_cast<double>(packet_bytes) - kPacketHeaderBytes;
  const double sent = payload_bytes + messages * kChunkHeaderBytes + kControlBytes;
  const double acknowledgements = answered_bytes / per_packet / kPacketsPerAcknowledgement;
  return sent * (1.0 + kPacketHeaderBytes / per_packet) + acknowledgements * kPacketHeaderBytes;
}

absl::Duration TransferTime(double bytes, double most_bytes, double line_rate, int flows,
                            const NetworkPath& path) {
  const Transfer transfer = TransferOf(bytes, most_bytes, line_rate, flows, path);
  return absl::Seconds(transfer.seconds + transfer.tail);
}

ExchangeForecast ForecastExchange(const job::JobSpec& job, const ExchangeSizes& sizes,
                                  const ExchangeFacts& facts) {
  ExchangeForecast forecast;
  const auto num_rounds = static_cast<double>(sizes.rounds.size());
  double seconds = 0.0;
  double steps = 0.0;
  for (size_t i = 0; i < sizes.rounds.size(); ++i) {
    const RoundTimes times(job, sizes, sizes.rounds[i], facts);
    const int of_window = job::HasLocalSteps(job)
                              ? job::StepsOfWindow(job, lodestar::Round(static_cast<int64_t>(i)))
                              : 1;
    seconds += times.Round(of_window);
    steps += of_window;
    forecast.bytes_up += times.bytes_up() / num_rounds;
    forecast.bytes_down += times.bytes_down() / num_rounds;
    forecast.push += absl::Seconds(times.push.all() / num_rounds);
    forecast.pull += absl::Seconds(times.pull.all() / num_rounds);
  }
  forecast.round = absl::Seconds(seconds / num_rounds);
  forecast.steps = steps / num_rounds;
  forecast.computed = facts.step * forecast.steps;
  return forecast;
}

}  // namespace lodestar::plan

#include "common/plan/exchange_forecast.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>

#include "common/job/fragment_plan.h"
#include "common/runtime/ids.h"

namespace lodestar {
namespace {

// Each packet has the headers of IPv4 and of TCP with time stamps.
constexpr double kPacketHeaderBytes = 52.0;
// TCP acknowledges every other packet.
constexpr double kPacketsPerAcknowledgement = 2.0;
// A chunk's header and the frames of HTTP/2 around it, and what it carries at most.
constexpr double kChunkHeaderBytes = 100.0;
constexpr double kChunkBytes = 1 << 20;
// Grant, report, heartbeat, beginning and end of two calls: what a round sends beside its payload
// in tests/bench/results/scaling.md ("Bytes per round in the wire encodings"), either way.
constexpr double kControlBytes = 1500.0;

constexpr double kStartupGain = 2.885;        // bbr_high_gain of Linux
constexpr double kInitialWindowPackets = 10;  // RFC 6928
// A first transfer begins with the initial window. Its fastest round trip carries this share of it
// (measured: 1.65 of 3.34 MB).
constexpr double kShareOfLastRoundTrip = 0.5;
// A lost packet is noticed a quarter of a round trip after the acknowledgement of those behind it
// (RFC 8985, reordering window), and takes another half.
constexpr double kRoundTripsPerLoss = 1.25;

// A lost packet with nothing behind it is sent again after two round trips and 200 ms (RFC 8985,
// tail loss probe of Linux, which waits for a delayed acknowledgement). What follows takes a round
// trip more, as the connection begins with a small window again.
constexpr double kProbeRoundTrips = 3.0;
constexpr double kProbeSeconds = 0.2;

// Workers that wait for their exchange take turns on the servers' links in this share of the jobs.
// It was measured over 40 jobs on links of 100 Mbit/s and 50 or 150 ms, after 20 rounds.
constexpr double kShareApart = 0.7;

// This share of a pull comes down while the push goes up, if the pull may come down then. It was
// measured with six buckets over two connections: 0.2 to 0.4.
constexpr double kPulledBesidePush = 0.33;

// Shares of a step: a backward pass takes twice as long as a forward pass.
constexpr double kForward = 1.0 / 3.0;
constexpr double kBackward = 2.0 / 3.0;

constexpr double kFp32Bytes = sizeof(float);

// Stages of `parts` equal parts, each part in one stage after the other, and each stage with one
// part at a time: the slowest without a pause, and the others for one part.
double Pipeline(double parts, std::initializer_list<double> stages) {
  double sum = 0.0;
  double slowest = 0.0;
  for (const double stage : stages) {
    sum += stage;
    slowest = std::max(slowest, stage);
  }
  return slowest + (sum - slowest) / std::max(parts, 1.0);
}

// How much longer transfers are expected to take that last for `seconds` and have `packets` packets
// in all, each of which is lost with probability `loss` and arrives `repair` seconds later then.
// What is lost early is repaired while the rest is on its way: it is the last loss that counts, at
// a distance from the end that is exponentially distributed.
double ExpectedTail(double seconds, double packets, double loss, double repair) {
  if (loss == 0.0 || repair == 0.0 || seconds == 0.0) return 0.0;
  const double per_second = packets * loss / seconds;
  const double window = std::min(seconds, repair);
  const double none = std::exp(-per_second * window);
  return repair * (1.0 - none) - ((1.0 - none) / per_second - window * none);
}

// See TransferTime().
struct Transfer {
  double seconds = 0.0;
  double tail = 0.0;  // beyond them, expected, for what is lost

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

// Bytes of memory that an update of one parameter reads and writes (apply.md).
double BytesPerUpdate(const JobSpec& job) {
  if (HasLocalSteps(job)) {
    switch (job.outer_optimizer) {
      case OuterOptimizerKind::kAverage:
        return 8;
      case OuterOptimizerKind::kSgd:
      case OuterOptimizerKind::kEasgd:
        return 12;
      case OuterOptimizerKind::kNesterov:
        return 20;
      case OuterOptimizerKind::kAdam:
        return 28;
    }
  }
  switch (job.optimizer.kind) {
    case OptimizerKind::kReduce:
      return 8;
    case OptimizerKind::kSgd:
      return 12;
    case OptimizerKind::kMomentum:
    case OptimizerKind::kNesterov:
      return 20;
    case OptimizerKind::kAdamW:
      return 28;
  }
  return 28;
}

// One round, in seconds, by its parts.
class RoundTimes {
 public:
  RoundTimes(const JobSpec& job, const ExchangeSizes& sizes, const RoundSizes& round,
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

    // One worker alone, and all of those who wait for each other at the same time.
    const double sharing = HasRosters(job) ? workers : 1.0;
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
    // A worker's first pull brings all parameters in fp32.
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
    // The server adds all contributions that come at the same time.
    add_ = sharing * of_server / facts.server_rates.Of(job.push_encoding).add;
    apply_ = of_server / kFp32Bytes * BytesPerUpdate(job) / facts.server_rates.apply +
             of_server / facts.server_rates.Of(job.pull_encoding).encode;
    // A subtraction before a contribution, and a merge after an exchange, of three vectors each.
    constexpr double kVectors = 3.0;
    vectors_ = kVectors * fp32 / facts.worker_rates.apply;
    overhead_ = absl::ToDoubleSeconds(facts.worker_rates.round_overhead);
    probe_ = kProbeRoundTrips * absl::ToDoubleSeconds(path.round_trip) + kProbeSeconds;
    losers_ = sharing * path.packet_loss;
    step_ = absl::ToDoubleSeconds(facts.step);
    round_trip_ = absl::ToDoubleSeconds(path.round_trip);
  }

  // `steps`: local steps of the round.
  double Round(int steps) const {
    if (!HasLocalSteps(job_)) return HasRosters(job_) ? Synchronous() : Alone(1);
    if (DefersContributions(job_)) return Overlapped(steps);
    return HasRosters(job_) ? Waiting(steps) : Alone(steps);
  }

  double bytes_up() const { return bytes_up_; }
  double bytes_down() const { return bytes_down_; }
  Transfer push;
  Transfer pull;

 private:
  // Buckets leave as backward produces them, and forward begins with those that have come: the
  // first that it needs is the last of backward.
  double Synchronous() const {
    const double pushed = Pipeline(parts_, {kBackward * step_ + encode_, push.all(), add_});
    return pushed + round_trip_ +
           Pipeline(parts_, {apply_, PullBehindPush(pushed), decode_, kForward * step_}) +
           overhead_ + LostPackets(kEndsOfTransfers);
  }
  // What is left of a pull when the push, which takes `pushed`, is over. A clipped gradient waits
  // for the whole norm. Else weights come, from the first bucket on, whose contributions are there
  // (worker/trainer/pull_order.h).
  double PullBehindPush(double pushed) const {
    if (job_.clip_norm > 0.0) return pull.all();
    const double first = (kBackward * step_ + encode_ + push.all() + add_) / std::max(parts_, 1.0);
    return pull.all() - std::min(kPulledBesidePush * pull.all(), pushed - first);
  }
  // The new weights are asked for once the contribution is acknowledged, as they may go where it
  // lies; the servers apply meanwhile. Who pushes last also asks last, by at most a round trip:
  // until then the weights of the others are on their way, so that workers may drift apart, and
  // their transfers share the servers' links for less: with two workers for as long as that less,
  // with four for a third of it, as far as was measured. Others stay together for long.
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
  // No worker waits for others, but all of them are served over the same links.
  double Alone(int steps) const {
    return std::max(served_, Waiting(steps) + (HasLocalSteps(job_) ? 0.0 : -vectors_));
  }
  // The part of the steps in front of the last pull's end.
  double Computing(int steps) const { return (steps - kForward) * step_; }
  // Contributions leave, and weights come, bucket by bucket in the same order. What is lost counts
  // where it takes longer than what runs beside it leaves.
  double Overlapped(int steps) const {
    const bool hides_all = job_.overlap_rounds || IsElastic(job_);
    const int hidden = hides_all ? steps : std::min(job_.overlap_steps, steps);
    const double other_steps = (steps - hidden) * step_;
    const double exchanged =
        round_trip_ +
        Pipeline(parts_, {encode_, push.seconds, add_, apply_, pull.seconds, decode_}) +
        other_steps;
    // The contribution is acknowledged, and told with the request for the next grant. What servers
    // answer to the last of the workers comes behind the weights of the others.
    const double acknowledged =
        Pipeline(parts_, {encode_, push.seconds, add_}) + others_pull_ + 2 * round_trip_;
    const double round = std::max({encode_ + steps * step_, exchanged, acknowledged});
    const auto beyond = [round](double end, double later) {
      return std::max(0.0, end + later - round);
    };
    constexpr int kOfAcknowledgement = 1 + 3;  // the push's end, and three messages
    constexpr int kOfExchange = 1 + 2;  // the pull's request, and its ends on two connections
    return round + beyond(acknowledged, push.tail) + beyond(exchanged, pull.tail) +
           losers_ * (kOfAcknowledgement * beyond(acknowledged, probe_) +
                      kOfExchange * beyond(exchanged, probe_)) +
           2 * vectors_ + overhead_;
  }

  // Expected, of so many packets of each worker with nothing behind them.
  double LostPackets(int packets) const { return packets * losers_ * probe_; }

  // Packets with nothing behind them that a round waits for: the last ones of push and pull; the
  // acknowledgement, the request for new weights, that for the next grant, and its answer.
  static constexpr int kEndsOfTransfers = 2;
  static constexpr int kMessages = 4;

  const JobSpec& job_;
  const ExchangeFacts& facts_;
  const double parts_;
  double bytes_up_ = 0.0;
  double bytes_down_ = 0.0;
  Transfer push_alone_;
  Transfer pull_alone_;
  // Seconds.
  double served_ = 0.0;       // of the servers' links, for a round of every worker
  double others_pull_ = 0.0;  // of the servers' links, until only one worker's weights are to come
  double encode_ = 0.0;
  double decode_ = 0.0;
  double add_ = 0.0;
  double apply_ = 0.0;  // with encoding what changed
  double vectors_ = 0.0;
  double overhead_ = 0.0;
  double probe_ = 0.0;   // until a lost packet with nothing behind it is sent again
  double losers_ = 0.0;  // expected number of workers that lose one packet
  double step_ = 0.0;
  double round_trip_ = 0.0;
};

}  // namespace

const ExchangeRates::Codec& ExchangeRates::Of(Encoding encoding) const {
  switch (encoding.kind()) {
    case Encoding::Kind::kFp32:
      return fp32;
    case Encoding::Kind::kBf16:
    case Encoding::Kind::kFp16:
      return half;
    case Encoding::Kind::kInt8:
      return int8;
    case Encoding::Kind::kInt4:
      return int4;
    case Encoding::Kind::kTopK2:
      return topk2;
    case Encoding::Kind::kTopK4:
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

ExchangeForecast ForecastExchange(const JobSpec& job, const ExchangeSizes& sizes,
                                  const ExchangeFacts& facts) {
  ExchangeForecast forecast;
  const auto num_rounds = static_cast<double>(sizes.rounds.size());
  double seconds = 0.0;
  double steps = 0.0;
  for (size_t i = 0; i < sizes.rounds.size(); ++i) {
    const RoundTimes times(job, sizes, sizes.rounds[i], facts);
    const int of_window =
        HasLocalSteps(job) ? StepsOfWindow(job, lodestar::Round(static_cast<int64_t>(i))) : 1;
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

}  // namespace lodestar

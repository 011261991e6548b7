// How well a job does, as every program shows it. The server measures it over all workers and tells
// them, so that no program shows the loss of a part of the data as if it were the job's.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "common/params/model_spec.h"
#include "common/runtime/ids.h"

namespace lodestar {

// Means in nats per prediction. A round's number is that of the updates before it, of training and
// of evaluation alike: both see the weights that the round starts from.
struct JobLoss {
  std::optional<double> train;  // over all that was reported of train_round
  Round train_round;
  std::optional<double> heldout;           // over the evaluation set
  std::optional<double> heldout_accuracy;  // share of predictions that are right
  Round heldout_round;
  friend bool operator==(const JobLoss&, const JobLoss&) = default;
};

// What people compare losses in. A gpt of 256 tokens has bytes for tokens: its loss is how many
// bits it takes to store a byte.
enum class LossUnit : uint8_t { kNats, kBitsPerByte };
LossUnit LossUnitOf(const ModelSpec& model);

// "nats" or "bits/byte".
const char* LossUnitName(LossUnit unit);

double BitsFromNats(double nats);

// "1.3075 nats", or "1.886 bits/byte (1.3075 nats)".
std::string LossText(double nats, LossUnit unit);

// "20/60", with what stands between; "300 (--rounds=60)" of a job that was resumed with fewer
// rounds than it has done.
std::string RoundOfText(int64_t round, int64_t total_rounds, absl::string_view of);

// "round 20/60  loss 4.853 bits/byte (3.3639 nats)  held-out 3.011 bits/byte (2.0874 nats) accuracy
// 18.67 %": of the round that the newer of the two losses is of, without what is of another round.
std::string JobLossText(const JobLoss& loss, int64_t total_rounds, LossUnit unit);

}  // namespace lodestar

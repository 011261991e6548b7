// SPDX-License-Identifier: Apache-2.0

// The loss of a job, which every program shows. The server measures it over all workers and sends
// it to them, so that no program shows the loss on a part of the data as the job's loss.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "common/params/model_spec.h"
#include "common/runtime/ids.h"

namespace lodestar::job {

// Losses are means in nats per prediction. A loss with round number r belongs to the weights after
// the first r updates, in training and in evaluation: round r starts from those weights.
struct JobLoss {
  std::optional<double> train;  // mean over all workers' reports for train_round
  Round train_round;
  std::optional<double> heldout;           // mean loss over the evaluation set
  std::optional<double> heldout_accuracy;  // share of correct predictions
  Round heldout_round;
  friend bool operator==(const JobLoss&, const JobLoss&) = default;
};

// Unit in which losses are shown. kBitsPerByte is used for a gpt with a vocabulary of 256: its
// tokens are bytes, so the loss is the mean number of bits that encode one byte.
enum class LossUnit : uint8_t { kNats, kBitsPerByte };
LossUnit LossUnitOf(const params::ModelSpec& model);

// Returns "nats" or "bits/byte".
const char* LossUnitName(LossUnit unit);

double BitsFromNats(double nats);

// Returns text such as "1.3075 nats" or "1.886 bits/byte (1.3075 nats)".
std::string LossText(double nats, LossUnit unit);

// Returns text such as "20/60", with `of` in place of "/". If a resumed job has done more rounds
// than it is asked for, returns text such as "300 (--rounds=60)".
std::string RoundOfText(int64_t round, int64_t total_rounds, absl::string_view of);

// Returns text such as "round 20/60  loss 4.853 bits/byte (3.3639 nats)  held-out 3.011 bits/byte
// (2.0874 nats) accuracy 18.67 %". The text is about the round of the newer of the two losses. If
// the other loss is of another round, it is left out.
std::string JobLossText(const JobLoss& loss, int64_t total_rounds, LossUnit unit);

}  // namespace lodestar::job

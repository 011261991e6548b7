// SPDX-License-Identifier: Apache-2.0

#include "common/job/job_loss.h"

#include <algorithm>
#include <numbers>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/job/endless_rounds.h"

namespace lodestar::job {
namespace {

constexpr int kNumBytes = 256;

}  // namespace

LossUnit LossUnitOf(const params::ModelSpec& model) {
  const params::GptSpec* const gpt = std::get_if<params::GptSpec>(&model.architecture);
  return gpt != nullptr && gpt->vocabulary == kNumBytes ? LossUnit::kBitsPerByte : LossUnit::kNats;
}

const char* LossUnitName(LossUnit unit) {
  return unit == LossUnit::kBitsPerByte ? "bits/byte" : "nats";
}

double BitsFromNats(double nats) { return nats / std::numbers::ln2; }

std::string LossText(double nats, LossUnit unit) {
  if (unit == LossUnit::kNats) return absl::StrFormat("%.4f nats", nats);
  return absl::StrFormat("%.3f bits/byte (%.4f nats)", BitsFromNats(nats), nats);
}

std::string RoundOfText(int64_t round, int64_t total_rounds, absl::string_view of) {
  if (total_rounds >= kEndlessRounds) return absl::StrCat(round);
  if (round <= total_rounds) return absl::StrCat(round, of, total_rounds);
  return absl::StrCat(round, " (--rounds=", total_rounds, ")");
}

std::string JobLossText(const JobLoss& loss, int64_t total_rounds, LossUnit unit) {
  const Round round = !loss.train.has_value()     ? loss.heldout_round
                      : !loss.heldout.has_value() ? loss.train_round
                                                  : std::max(loss.train_round, loss.heldout_round);
  std::string text = absl::StrCat("round ", RoundOfText(round.value(), total_rounds, "/"));
  if (loss.train.has_value() && loss.train_round == round) {
    absl::StrAppend(&text, "  loss ", LossText(*loss.train, unit));
  }
  if (loss.heldout.has_value() && loss.heldout_round == round) {
    absl::StrAppend(&text, "  held-out ", LossText(*loss.heldout, unit));
    if (loss.heldout_accuracy.has_value()) {
      absl::StrAppendFormat(&text, "  accuracy %.2f %%", 100.0 * *loss.heldout_accuracy);
    }
  }
  return text;
}

}  // namespace lodestar::job

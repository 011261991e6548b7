// SPDX-License-Identifier: Apache-2.0

// Stores measured choices for later processes: which algorithm of cuBLASLt a matrix product uses,
// and whether an operation is fused. The choices are stored as readable text:
//
//   lodestar tuning 1
//   card: NVIDIA H200
//   compute capability: 9.0
//   cuBLASLt: 130100
//   driver: 13000
//   runtime: 13000
//
//   5a0c11e2 fusion bf16 forward 16 x 24 x 32, bias = separate | fused 1.5 us, separate 1.2 us
//
// The header above the choices names the card, driver and libraries for which they are valid. The
// text may also have sections of other cards, which do not change. A section of the same card with
// other versions is replaced. Each choice is a line: a checksum of the rest of the line, the name
// of what is chosen, the choice, and the reason. If a user removes a line, the next run makes this
// choice again.
#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace lodestar::cuda {

// Names the card, driver and library versions for which measured choices are valid.
struct TuningOrigin {
  std::string card;  // name of the card, such as "NVIDIA H200"
  int compute_capability = 0;
  size_t cublaslt_version = 0;
  int driver_version = 0;
  int runtime_version = 0;
};

// The part of a text with the choices of one card. A text has one section per card.
struct TuningSection {
  size_t begin = 0;  // index of the section's first line in the text
  std::vector<absl::string_view> lines = {};
};

// The choices that one device has made by measuring. Thread-safe.
class Tuning {
 public:
  // `text` comes from an earlier run, or is empty. If `text` is not set, choices are not stored.
  Tuning(const std::optional<std::string>& text, const TuningOrigin& origin);

  bool is_kept() const { return is_kept_; }
  // Returns the choice for `name`. Returns nullopt if there is none yet.
  std::optional<std::string> Find(const std::string& name) const;
  // Stores a choice. `name`, `choice` and `why` must be single lines. They are joined by " = " and
  // " | ". So `name` must not contain the first, and `choice` must not contain the second.
  void Keep(const std::string& name, const std::string& choice, const std::string& why);
  // Removes the choice that Find() returned for `name`, because it cannot be used any more.
  void Refuse(const std::string& name, const std::string& why);

  // Returns `text` with the choices of this object added and refused choices removed. All other
  // choices of this card and versions stay, and so do sections of other cards. Returns an empty
  // text if choices are not stored.
  std::string Merge(absl::string_view text) const;
  // Returns one line, with the reason, for each part of the constructor's text that is not used.
  std::string Describe() const;

 private:
  struct Choice {
    std::string choice, why;
  };
  using Choices = std::map<std::string, Choice>;

  // Returns the choices in `text` that can be used. Sets *ignored to the parts of `text` that
  // cannot be used, with the reasons, or to an empty text.
  Choices Parse(absl::string_view text, std::string* ignored) const;
  Choices ParseChoices(const TuningSection& section, std::string* ignored) const;
  // Returns the whole sections of other cards in `text`.
  std::string OfOtherCards(absl::string_view text) const;

  const bool is_kept_;
  const std::string header_;  // ends with a newline
  std::string ignored_;
  mutable std::mutex mutex_;
  Choices choices_;
  // For each name, the choice of the earlier run, which was refused.
  std::map<std::string, std::string> refused_;
  std::string refusals_;
};

}  // namespace lodestar::cuda

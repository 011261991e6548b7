// Choices by measuring that outlive the process: which algorithm of cuBLASLt a matrix product
// takes, and whether an operation is fused. They are kept as text, which people can read:
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
// The lines above the choices say what these are good for. Other cards have sections of their own
// in the same text, which stay; choices of another version of this card's are replaced.
// Each choice is a line: a checksum of the rest of the line, what was to be chosen, the choice, and
// why. Lines may be removed by hand, which has their choices made again.
#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace lodestar::cuda {

// What choices are good for.
struct TuningOrigin {
  std::string card;  // its name, as "NVIDIA H200"
  int compute_capability = 0;
  size_t cublaslt_version = 0;
  int driver_version = 0;
  int runtime_version = 0;
};

// Of one card and version in a text, which has one for each card.
struct TuningSection {
  size_t begin = 0;  // of its first line, among all lines
  std::vector<absl::string_view> lines = {};
};

// Thread-safe.
class Tuning {
 public:
  // `text`: of an earlier run, or empty. Not set: choices are not to outlive the process.
  Tuning(const std::optional<std::string>& text, const TuningOrigin& origin);

  bool is_kept() const { return is_kept_; }
  // What was chosen for `name`; nothing if that is to be chosen still.
  std::optional<std::string> Find(const std::string& name) const;
  // Names, choices and reasons are single lines; names have no " = ", choices no " | ".
  void Keep(const std::string& name, const std::string& choice, const std::string& why);
  // What was found for `name` cannot be used any more.
  void Refuse(const std::string& name, const std::string& why);

  // All that is in `text`, if it is of this origin, but for what was refused; and what this one has
  // besides. Empty if choices are not kept.
  std::string Merge(absl::string_view text) const;
  // What was not used of the text that this one was made with, and why, a line each.
  std::string Describe() const;

 private:
  struct Choice {
    std::string choice, why;
  };
  using Choices = std::map<std::string, Choice>;

  // *ignored is set to what is not used of `text`, and why, or to nothing.
  Choices Parse(absl::string_view text, std::string* ignored) const;
  Choices ParseChoices(const TuningSection& section, std::string* ignored) const;
  // The sections of `text` that are not of this card, whole.
  std::string OfOtherCards(absl::string_view text) const;

  const bool is_kept_;
  const std::string header_;  // whole lines
  std::string ignored_;
  mutable std::mutex mutex_;
  Choices choices_;
  std::map<std::string, std::string> refused_;  // the choice that was found, by name
  std::string refusals_;
};

}  // namespace lodestar::cuda

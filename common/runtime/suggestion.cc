// SPDX-License-Identifier: Apache-2.0

#include "common/runtime/suggestion.h"

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"

namespace lodestar {
namespace {

// A name that other programs use for the purpose of a Lodestar flag.
struct OtherName {
  absl::string_view name;
  absl::string_view flag;
};
constexpr OtherName kOtherNames[] = {
    {"address", "listen"},
    {"bind", "listen"},
    {"host", "listen"},
    {"port", "listen"},
    {"server", "coordinator"},
    {"address", "coordinator"},
    {"host", "coordinator"},
    {"port", "coordinator"},
    {"master", "coordinator"},
    {"coordinator", "server"},
    {"address", "server"},
    {"host", "server"},
    {"port", "server"},
    {"lr", "learning_rate"},
    {"lr_scheduler", "lr_schedule"},
    {"scheduler", "lr_schedule"},
    {"warmup_steps", "warmup_rounds"},
    {"grad_clip", "clip_norm"},
    {"max_grad_norm", "clip_norm"},
    {"nproc", "min_workers"},
    {"num_workers", "min_workers"},
    {"workers", "min_workers"},
    {"world_size", "min_workers"},
    {"epochs", "rounds"},
    {"max_steps", "rounds"},
    {"num_steps", "rounds"},
    {"steps", "rounds"},
    {"batch", "batch_size"},
    {"micro_batch_size", "batch_size"},
    {"ckpt_dir", "checkpoint_dir"},
    {"output_dir", "checkpoint_dir"},
    {"save_interval", "checkpoint_interval"},
    {"data_dir", "data"},
    {"data_path", "data"},
    {"dataset", "data"},
    {"gpu", "device"},
    {"gpus", "device"},
    {"precision", "dtype"},
};

// A flag that users often give to the wrong program, and the program that has this flag.
struct FlagOfProgram {
  absl::string_view flag;
  absl::string_view program;
};
constexpr FlagOfProgram kFlagsOfPrograms[] = {
    {"batch_size", "ps_server"},
    {"checkpoint_dir", "ps_server"},
    {"checkpoint_interval", "ps_server"},
    {"clip_norm", "ps_server"},
    {"data", "gpu_worker"},
    {"device", "gpu_worker"},
    {"dtype", "gpu_worker"},
    {"learning_rate", "ps_server"},
    {"listen", "ps_server"},
    {"local_steps", "ps_server"},
    {"lr_schedule", "ps_server"},
    {"min_workers", "ps_server"},
    {"mode", "ps_server"},
    {"model", "ps_server"},
    {"optimizer", "ps_server"},
    {"rounds", "ps_server"},
    {"seed", "ps_server"},
    {"threads", "gpu_worker"},
    {"warmup_rounds", "ps_server"},
};

// Returns the number of edits from `a` to `b`. Two neighbouring letters that changed places count
// as one edit (optimal string alignment).
size_t EditDistance(absl::string_view a, absl::string_view b) {
  // Three rows of the table of distances between prefixes: two rows back, one row back, the current
  // row.
  std::vector<size_t> before_last(b.size() + 1);
  std::vector<size_t> last(b.size() + 1);
  std::vector<size_t> current(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) current[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    before_last.swap(last);
    last.swap(current);
    current[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      current[j] = std::min({replaced, last[j] + 1, current[j - 1] + 1});
      const bool is_swap =
          i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && a[i - 1] != b[j - 1];
      if (is_swap) current[j] = std::min(current[j], before_last[j - 2] + 1);
    }
  }
  return current[b.size()];
}

}  // namespace

std::string ClosestWord(absl::string_view word, const std::vector<std::string>& known) {
  const std::string* closest = nullptr;
  // Swapped or replaced letters are more likely than missing letters. So of two candidates with as
  // many edits, the one whose length is nearer is preferred.
  std::pair<size_t, size_t> least = {word.size() / 3 + 1, 0};
  for (const std::string& candidate : known) {
    const size_t longer = std::max(word.size(), candidate.size());
    const size_t shorter = std::min(word.size(), candidate.size());
    const std::pair<size_t, size_t> edits = {EditDistance(word, candidate), longer - shorter};
    if (edits >= least) continue;
    least = edits;
    closest = &candidate;
  }
  return closest == nullptr ? "" : *closest;
}

std::string FlagHint(absl::string_view name, const std::vector<std::string>& own) {
  std::vector<absl::string_view> meant = {name};
  for (const OtherName& other : kOtherNames) {
    if (other.name == name) meant.push_back(other.flag);
  }
  for (const absl::string_view flag : meant) {
    if (absl::c_linear_search(own, flag)) return absl::StrCat("did you mean --", flag, "?");
  }
  if (const std::string closest = ClosestWord(name, own); !closest.empty()) {
    return absl::StrCat("did you mean --", closest, "?");
  }
  for (const absl::string_view flag : meant) {
    for (const FlagOfProgram& known : kFlagsOfPrograms) {
      if (known.flag == flag) return absl::StrCat("--", flag, " is a flag of ", known.program);
    }
  }
  return "";
}

}  // namespace lodestar

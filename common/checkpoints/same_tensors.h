// SPDX-License-Identifier: Apache-2.0

// Compares the tensors of a program with those of a job. The job may have them in another order and
// in other blocks. Pure.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/params/layout.h"

namespace lodestar::checkpoints {

// Returns the tensor of `job` with the name `name`. If the job has none, looks again without the
// prefix that Hugging Face's classes put before names. Null means that the job has neither.
const params::TensorSpec* FindTensorOfProgram(const params::Layout& job, absl::string_view name);

// Checks that `program` and `job` have the same tensors, with the same shapes and the same
// `averaged` marks. Order, blocks and decay marks may differ. Errors: FailedPrecondition naming the
// first tensor that differs or that only one side has. `ours` and `theirs` name the sides in the
// message.
absl::Status CheckSameTensors(const params::Layout& job, const std::string& ours,
                              const params::Layout& program, const std::string& theirs);

// Returns text that says for which tensors weight decay differs, such as "weight decay applies to
// 'b' here, and not in the job". The text names the first such tensor and counts the others. Empty
// means that weight decay is the same for all. Requires: CheckSameTensors() is OK.
std::string DifferingDecay(const params::Layout& job, const params::Layout& program);

}  // namespace lodestar::checkpoints

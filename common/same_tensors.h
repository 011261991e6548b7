// Whether a program's tensors are those of a job whose layout has them in an order, and in blocks,
// of its own. Pure.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/layout.h"

namespace lodestar {

// The tensor of `job` that a program calls `name`: that of the same name, else that of the name
// without the prefix that Hugging Face's classes put before it. Null: there is none.
const TensorSpec* FindTensorOfProgram(const Layout& job, absl::string_view name);

// OK if each tensor of `program` is one of `job`, in shape and in whether it is averaged, too, and
// none of `job` is left. Order, blocks and decay marks may differ. Errors: FailedPrecondition
// naming the first tensor that the job does not have, that is another there, or that is missing.
// `ours` and `theirs` name the sides in the message.
absl::Status CheckSameTensors(const Layout& job, const std::string& ours, const Layout& program,
                              const std::string& theirs);

// Of tensors that are the same so: which of them weight decay applies to in one and not in the
// other, as "weight decay applies to 'b' here, and not in the job" with the first one and how many
// there are. Empty: there are none.
std::string DifferingDecay(const Layout& job, const Layout& program);

}  // namespace lodestar

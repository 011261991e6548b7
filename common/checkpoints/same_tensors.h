// Whether a program's tensors are those of a job whose layout has them in an order, and in blocks,
// of its own. Pure.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/params/layout.h"

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

// The tensors of both are the same by CheckSameTensors(). Returns to which of them weight decay
// applies in one and not in the other: "weight decay applies to 'b' here, and not in the job", with
// the first one and how many more there are. The text is empty if there are none.
std::string DifferingDecay(const Layout& job, const Layout& program);

}  // namespace lodestar

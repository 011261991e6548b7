// SPDX-License-Identifier: Apache-2.0

// The control groups (containers, systemd units) that this process belongs to. The limits of a
// group also apply to all groups below it.
#pragma once

#include <string>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"

namespace lodestar::machine {

// Version of the kernel's interface, which decides the file names.
enum class GroupVersion { kFirst, kSecond };

// Calls `visit` for each control group of this process that may limit `controller` ("memory",
// "cpu"), beginning at the root of the tree. Passes the group's folder and its name ("/jobs/7").
// The folder may not exist: in a container, the name may be the path on the host, but only a part
// of that tree is visible. `root` is the folder that contains /proc and /sys; tests use trees of
// their own.
void ForEachControlGroup(const std::string& root, absl::string_view controller,
                         absl::FunctionRef<void(GroupVersion version, const std::string& folder,
                                                const std::string& name)>
                             visit);

// Returns the content of a small kernel file. Empty if it cannot be read.
std::string KernelText(const std::string& path);

}  // namespace lodestar::machine

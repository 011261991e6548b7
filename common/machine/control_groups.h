// The control groups (containers, systemd units) that this process is in. A group's limits hold for
// all groups below it.
#pragma once

#include <string>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"

namespace lodestar {

enum class GroupVersion { kFirst, kSecond };  // of the interface, which names the files

// Calls `visit` with the folder and the name ("/jobs/7") of each group of this process that may
// limit what `controller` ("memory", "cpu") shares out, from the root of the tree on. `root` is
// where /proc and /sys are; tests have trees of their own. A folder may be missing: in a container
// the name may be that of the host, while the tree begins at the container's own group.
void ForEachControlGroup(const std::string& root, absl::string_view controller,
                         absl::FunctionRef<void(GroupVersion version, const std::string& folder,
                                                const std::string& name)>
                             visit);

// What a small file of the kernel says. Empty if it cannot be read.
std::string KernelText(const std::string& path);

}  // namespace lodestar

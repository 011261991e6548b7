// Where NVIDIA's Python packages, which PyTorch brings, have put their libraries: no loader
// searches there.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace lodestar::factory {

// Folders that packages are installed in, from the prefix of a Python environment; Debian's
// packages are dist-packages.
inline constexpr char kPythonPackages[] = "lib/python3*/*-packages/";

// Files of that path, which may be a pattern, below the packages of environments whose programs are
// on the PATH, or whose python3 one on the PATH is a link to, in the order of the PATH.
std::vector<std::string> PythonPackageFiles(absl::string_view path);

// Loads `file` from where the loader searches, else from `folder` ("nvidia/cudnn/lib/") below the
// packages; what asks for it by name later has this one. It is never unloaded. Errors: NotFound
// with what was tried.
absl::StatusOr<void*> LoadLibrary(absl::string_view file, absl::string_view folder);

}  // namespace lodestar::factory

// SPDX-License-Identifier: Apache-2.0

// Finds the libraries that NVIDIA's Python packages have installed; PyTorch brings these packages.
// The loader does not search their folders.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace lodestar::factory {

// Pattern of the folders that packages are installed in, relative to the prefix of a Python
// environment. Debian's packages are in dist-packages.
inline constexpr char kPythonPackages[] = "lib/python3*/*-packages/";

// Returns the files that match `path`, which may be a pattern, below the packages of Python
// environments, in the order of the PATH. The environments are those with a folder on the PATH, and
// those that a python3 on the PATH links to.
std::vector<std::string> PythonPackageFiles(absl::string_view path);

// Loads `file` from where the loader searches, or else from `folder` ("nvidia/cudnn/lib/") below
// the Python packages. A later load of `file` by its name gets the same library. The library is
// never unloaded. Errors: NotFound (with the places tried).
absl::StatusOr<void*> LoadLibrary(absl::string_view file, absl::string_view folder);

}  // namespace lodestar::factory

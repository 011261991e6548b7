// SPDX-License-Identifier: Apache-2.0

// Finds the libraries that NVIDIA's Python packages install, for example together with PyTorch. The
// dynamic loader does not search their folders.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace lodestar::factory {

// Pattern of the folders in which packages are installed, relative to the prefix of a Python
// environment. Debian's packages are in dist-packages.
inline constexpr char kPythonPackages[] = "lib/python3*/*-packages/";

// Returns the files that match `path` in the packages of the Python environments on the PATH, in
// the order of the PATH. `path` may be a pattern. If a python3 on the PATH is a link, the
// environment of its target is searched too.
std::vector<std::string> PythonPackageFiles(absl::string_view path);

// Loads `file` from a place that the loader searches. If it is not found there, loads it from
// `folder` ("nvidia/cudnn/lib/") in the packages of Python environments. The library is never
// unloaded, and a later dlopen(file) returns the same library. Errors: NotFound, with the places
// tried.
absl::StatusOr<void*> LoadLibrary(absl::string_view file, absl::string_view folder);

}  // namespace lodestar::factory

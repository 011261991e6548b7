// SPDX-License-Identifier: Apache-2.0

#include "kernels/factory/python_environment.h"

#include <dlfcn.h>
#include <glob.h>

#include <cstdlib>
#include <filesystem>
#include <set>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace lodestar::factory {

namespace {

// Maximum number of links that are followed, because links may form a cycle. The kernel has the
// same limit.
constexpr int kMostLinks = 40;

// Returns `folder`. If its python3 is a link, also returns the folder of the link's target, and so
// on while the target is a link too. Each folder may belong to another environment, because venv
// makes links to the python3 of an environment.
std::vector<std::filesystem::path> ProgramFolders(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> folders = {folder};
  std::filesystem::path program = folder / "python3";
  for (int link = 0; link < kMostLinks; ++link) {
    std::error_code error;
    const std::filesystem::path target = std::filesystem::read_symlink(program, error);
    if (error) break;
    program = program.parent_path() / target;  // an absolute `target` replaces the folder
    folders.push_back(program.parent_path());
  }
  return folders;
}

}  // namespace

std::vector<std::string> PythonPackageFiles(absl::string_view path) {
  std::vector<std::string> files;
  std::set<std::filesystem::path> seen;
  const char* const folders = std::getenv("PATH");
  for (absl::string_view on_path : absl::StrSplit(folders != nullptr ? folders : "", ':')) {
    if (!absl::StartsWith(on_path, "/")) continue;  // any user may control a relative folder
    for (const std::filesystem::path& folder : ProgramFolders(std::string(on_path))) {
      if (!seen.insert(folder.lexically_normal()).second) continue;
      const std::string pattern = absl::StrCat(folder.native(), "/../", kPythonPackages, path);
      glob_t found = {};
      if (glob(pattern.c_str(), 0, nullptr, &found) == 0) {
        files.insert(files.end(), found.gl_pathv, found.gl_pathv + found.gl_pathc);
      }
      globfree(&found);
    }
  }
  return files;
}

absl::StatusOr<void*> LoadLibrary(absl::string_view file, absl::string_view folder) {
  std::vector<std::string> paths = PythonPackageFiles(absl::StrCat(folder, file));
  paths.insert(paths.begin(), std::string(file));
  std::string tried;
  for (const std::string& path : paths) {
    if (void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL); library != nullptr) {
      return library;
    }
    absl::StrAppend(&tried, dlerror(), "; ");
  }
  return absl::NotFoundError(absl::StrCat(tried, "no Python environment on the PATH has it as ",
                                          kPythonPackages, folder, file));
}

}  // namespace lodestar::factory

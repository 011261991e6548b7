#include "kernels/python_environment.h"

#include <dlfcn.h>
#include <glob.h>

#include <cstdlib>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace lodestar {

std::vector<std::string> PythonPackageFiles(absl::string_view path) {
  std::vector<std::string> files;
  const char* const folders = std::getenv("PATH");
  for (absl::string_view folder : absl::StrSplit(folders != nullptr ? folders : "", ':')) {
    if (!absl::StartsWith(folder, "/")) continue;  // of the working directory: anybody's
    const std::string pattern = absl::StrCat(folder, "/../", kPythonPackages, path);
    glob_t found = {};
    if (glob(pattern.c_str(), 0, nullptr, &found) == 0) {
      files.insert(files.end(), found.gl_pathv, found.gl_pathv + found.gl_pathc);
    }
    globfree(&found);
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

}  // namespace lodestar

// SPDX-License-Identifier: Apache-2.0

#include "kernels/cuda/nccl.h"

#include <dlfcn.h>

#include <type_traits>

#include "absl/strings/str_cat.h"
#include "kernels/factory/python_environment.h"

#if __has_include(<nccl.h>)
#include <nccl.h>
#endif

namespace lodestar::cuda {
namespace {

constexpr char kNcclFile[] = "libnccl.so.2";
// Folder of NCCL inside NVIDIA's Python packages, which are installed with PyTorch.
constexpr char kPythonFolder[] = "nvidia/nccl/lib/";

#if __has_include(<nccl.h>)
static_assert(int{kNcclSuccess} == int{ncclSuccess});
static_assert(int{kNcclFloat32} == int{ncclFloat32});
static_assert(int{kNcclSum} == int{ncclSum});
#endif

}  // namespace

absl::StatusOr<NcclFunctions> LoadNccl() {
  const absl::StatusOr<void*> library = factory::LoadLibrary(kNcclFile, kPythonFolder);
  if (!library.ok()) return library.status();
  NcclFunctions functions;
  std::string missing;
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(*library, name));
    if (function == nullptr) absl::StrAppend(&missing, missing.empty() ? "" : ", ", name);
  };
  find(functions.get_version, "ncclGetVersion");
  find(functions.get_error_string, "ncclGetErrorString");
  find(functions.comm_init_all, "ncclCommInitAll");
  find(functions.comm_destroy, "ncclCommDestroy");
  find(functions.comm_abort, "ncclCommAbort");
  find(functions.comm_get_async_error, "ncclCommGetAsyncError");
  find(functions.group_start, "ncclGroupStart");
  find(functions.group_end, "ncclGroupEnd");
  find(functions.broadcast, "ncclBroadcast");
  find(functions.reduce, "ncclReduce");
  if (missing.empty()) return functions;
  return absl::UnavailableError(absl::StrCat(kNcclFile, " has no ", missing));
}

std::string NcclVersionText(int version) {
  // From NCCL 2.9 on, minor version and patch have two digits each. Before, the minor version has
  // one digit.
  const int major_unit = version >= 10000 ? 10000 : 1000;
  return absl::StrCat(version / major_unit, ".", version % major_unit / 100, ".", version % 100);
}

}  // namespace lodestar::cuda

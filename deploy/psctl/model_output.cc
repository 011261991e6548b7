#include "deploy/psctl/model_output.h"

#include <filesystem>
#include <memory>
#include <system_error>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/file_system.h"
#include "common/model_spec_json.h"
#include "common/output_file.h"
#include "common/safetensors.h"
#include "common/status_macros.h"

namespace lodestar {
namespace {

bool IsModelOfOurs(const std::string& path) {
  const absl::StatusOr<std::unique_ptr<SafetensorsReader>> file =
      SafetensorsReader::Open(FileSystem::Real(), path);
  return file.ok() && (*file)->metadata().count(kModelMetadataKey) > 0;
}

}  // namespace

absl::Status CheckModelOutput(const std::string& path, Replace replace) {
  RETURN_IF_ERROR(CheckOutput("out", path));
  ASSIGN_OR_RETURN(const std::string target, ResolveOutput(path));
  std::error_code no_file;
  const bool has_content = std::filesystem::file_size(target, no_file) > 0 && !no_file;
  if (!has_content || replace == Replace::kAny || IsModelOfOurs(target)) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("--out=", path,
                   " is there already, and no model that psctl wrote; name another file, or "
                   "give --force to replace it"));
}

}  // namespace lodestar

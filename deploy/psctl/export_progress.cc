// SPDX-License-Identifier: Apache-2.0

#include "deploy/psctl/export_progress.h"

#include "absl/strings/str_cat.h"
#include "common/runtime/bytes_text.h"

namespace lodestar::psctl {

std::string ExportProgress::Look(int64_t num_bytes, int64_t announced_bytes,
                                 absl::string_view server, absl::string_view waiting_for,
                                 absl::Time now) {
  const bool has_come = num_bytes != num_bytes_;
  num_bytes_ = num_bytes;
  if (has_come) came_at_ = now;
  if (has_come) is_wait_told_ = false;
  const bool is_waiting = now - came_at_ >= kPatience;
  const bool is_due = now - told_at_ >= kInterval;
  if (!is_due && (!is_waiting || is_wait_told_)) return "";
  told_at_ = now;
  is_wait_told_ = is_waiting;
  const std::string done =
      announced_bytes == 0 ? absl::StrCat(BytesText(num_bytes))
                           : absl::StrCat(BytesText(num_bytes), " of ", BytesText(announced_bytes));
  if (!is_waiting) return absl::StrCat("the export has received ", done);
  return absl::StrCat("the export waits: ps_server at ", server, " has sent nothing for ",
                      absl::FormatDuration(absl::Floor(now - came_at_, absl::Seconds(1))),
                      ", after ", done, waiting_for.empty() ? "" : "; the job says: ", waiting_for);
}

}  // namespace lodestar::psctl

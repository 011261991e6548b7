// SPDX-License-Identifier: Apache-2.0

// psctl top shows a job in one picture that fills a terminal.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "common/history/run_history.h"
#include "proto/status_service.pb.h"

namespace lodestar::psctl {

struct TopPicture {
  int columns = 80;        // A width, or kUnlimitedColumns.
  int rows = 24;           // 0 means any number.
  bool has_blocks = true;  // True if the terminal can show U+2581 to U+2588.
  // Text about the server that replaces the last line. Empty means that there is none.
  std::string note = {};
};

// Returns progress, losses, servers, workers, and as many of the last events as there is room for.
// If there is too little room, the tables are shortened as well.
std::string TopText(const v1::ClusterStatus& status, const history::RunHistory& history,
                    const TopPicture& picture);

// Draws the losses of a run in at most `width` columns. Each column shows the mean loss of a part
// of the run. The column with the highest mean is a full block. Empty means that there are fewer
// than two losses.
std::string LossCurveText(const history::RunHistory& history, int width, bool has_blocks);

}  // namespace lodestar::psctl

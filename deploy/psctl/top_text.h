// psctl top: a job in one picture of a terminal.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "common/run_history.h"
#include "proto/status_service.pb.h"

namespace lodestar {

struct TopPicture {
  int columns = 80;        // or kUnlimitedColumns
  int rows = 24;           // 0: any number
  bool has_blocks = true;  // the terminal shows U+2581 to U+2588
  std::string note = {};   // what is to be said of the server in place of the last line
};

// Progress, losses, servers, workers, and as many of the last events as there is room for. Where
// there is too little, of the tables as well.
std::string TopText(const v1::ClusterStatus& status, const RunHistory& history,
                    const TopPicture& picture);

// The losses of a run in at most `width` columns: of each part of it the mean, the highest as a
// full block. Empty: there are less than two.
std::string LossCurveText(const RunHistory& history, int width, bool has_blocks);

}  // namespace lodestar

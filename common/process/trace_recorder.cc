// SPDX-License-Identifier: Apache-2.0

#include "common/process/trace_recorder.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/logging/logging.h"
#include "common/output/output_file.h"
#include "common/process/version.h"
#include "common/runtime/json.h"
#include "common/runtime/status_macros.h"
#include "common/storage/file_system.h"

namespace lodestar::process {
namespace {

// Maximum number of spans. They and the text of the file take about 100 MB. No reader looks at more
// spans.
constexpr size_t kMaxSpans = 1 << 18;

// Returns the time as text in microseconds, the unit of the format. A double could not hold
// nanoseconds since 1970.
std::string Microseconds(int64_t nanoseconds) {
  return absl::StrFormat("%d.%03d", nanoseconds / 1000, nanoseconds % 1000);
}

// Returns, as JSON, the values that are set in the tag.
std::string Arguments(const TraceTag& tag) {
  std::string text;
  const auto add = [&text](absl::string_view name, int64_t value) {
    if (value >= 0) absl::StrAppend(&text, text.empty() ? "" : ",", "\"", name, "\":", value);
  };
  add("round", tag.round);
  add("block", tag.block);
  add("bucket", tag.bucket);
  add("bytes", tag.bytes);
  return absl::StrCat("{", text, "}");
}

// The beginning of every trace that we write.
constexpr char kTraceBegin[] = R"({"displayTimeUnit":"ms","otherData":{"version":")";

// Returns a text that changes if the file at `path` is replaced or written. Empty means that there
// is no file.
std::string VersionOf(const std::string& path) {
  struct stat info;
  if (path.empty() || stat(path.c_str(), &info) != 0) return "";
  return absl::StrCat(info.st_dev, ":", info.st_ino, ":", info.st_size, ":",
                      absl::ToUnixNanos(absl::TimeFromTimespec(info.st_mtim)));
}

std::string Quoted(absl::string_view text) { return FormatJson(Json(std::string(text))); }

// Returns a trace entry that sets the property `what`, such as the name or the position, of the
// process or of the row `row`.
std::string Metadata(absl::string_view what, int row, absl::string_view arguments) {
  return absl::StrCat("{\"ph\":\"M\",\"pid\":", getpid(), ",\"tid\":", row, ",\"name\":\"", what,
                      "\",\"args\":{", arguments, "}}");
}

}  // namespace

absl::Status CheckTraceOutput(const std::string& path) {
  if (path.empty()) return absl::OkStatus();
  RETURN_IF_ERROR(output::CheckOutput("trace", path));
  std::string begin(sizeof(kTraceBegin) - 1, '\0');
  std::ifstream there(path, std::ios::binary);
  there.read(begin.data(), static_cast<std::streamsize>(begin.size()));
  begin.resize(static_cast<size_t>(there.gcount()));
  const bool is_readable = there.is_open() || VersionOf(path).empty();
  if (is_readable && (begin.empty() || begin == kTraceBegin)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "--trace=", path,
      ": this file exists and is not a trace of Lodestar, because it does not begin with ",
      kTraceBegin, ". Give another path, or move the file away"));
}

TraceRecorder::TraceRecorder(Options options, Clock* clock)
    : options_(std::move(options)), version_before_(VersionOf(options_.path)), clock_(clock) {}

void TraceRecorder::BeginRound(int64_t round) {
  bool is_over = false;
  {
    absl::MutexLock lock(&mutex_);
    round_ = round;
    ++rounds_begun_;
    is_over = rounds_begun_ == options_.skip_rounds + options_.num_rounds + 1;
    if (rounds_begun_ == options_.skip_rounds + 1) is_recording_ = true;
  }
  if (is_over) Finish();
}

void TraceRecorder::Add(absl::string_view lane, absl::string_view name, absl::Time begin,
                        absl::Time end, const TraceTag& tag) {
  absl::MutexLock lock(&mutex_);
  if (!is_recording()) return;
  if (spans_.size() == kMaxSpans) {
    ++num_dropped_;
    return;
  }
  spans_.push_back({lane, name, begin, end, tag});
  if (tag.round < 0) spans_.back().tag.round = round_;
}

void TraceRecorder::Finish() {
  std::vector<Span> spans;
  int64_t num_dropped = 0;
  {
    absl::MutexLock lock(&mutex_);
    if (!is_recording()) return;
    is_recording_ = false;
    spans.swap(spans_);
    num_dropped = num_dropped_;
  }
  const absl::StatusOr<std::string> path = Write(ToJson(std::move(spans), num_dropped));
  if (!path.ok())
    return logging::LogError("the trace was not written: {}", path.status().message());
  logging::LogInfo("the trace was written to {}; open it in https://ui.perfetto.dev", *path);
}

absl::StatusOr<std::string> TraceRecorder::Write(const std::string& json) const {
  ASSIGN_OR_RETURN(output::ReplacementFile file, output::ReplacementFile::Create(options_.path));
  RETURN_IF_ERROR(file.Append(json));
  // Another process may have written the same path at the end of the same round. So the path is
  // checked after Finish(), which is slow.
  RETURN_IF_ERROR(file.Finish().status());
  std::string path = options_.path;
  if (VersionOf(path) == version_before_) {
    RETURN_IF_ERROR(file.Commit());
    return path;
  }
  path = storage::UnusedPath(storage::FileSystem::Real(), file.target());
  RETURN_IF_ERROR(file.CommitAs(path));
  logging::LogWarn(
      "trace file {} was overwritten by another process while this process ran; give each process "
      "a different --trace",
      options_.path);
  return path;
}

TraceRecorder::Rows TraceRecorder::AssignRows(const std::vector<Span>& spans) {
  struct Row {
    int number = 0;
    // Ends of the spans that may enclose the next span, outermost first.
    std::vector<absl::Time> open_ends;
  };
  std::map<absl::string_view, std::vector<Row>> lanes;
  Rows rows;
  for (const Span& span : spans) {
    std::vector<Row>& lane = lanes[span.lane];
    // The format does not allow spans to overlap in a row. A span must lie within an earlier span
    // or after it.
    const auto fits = [&span](Row& row) {
      while (!row.open_ends.empty() && row.open_ends.back() <= span.begin) row.open_ends.pop_back();
      return row.open_ends.empty() || span.end <= row.open_ends.back();
    };
    auto row = std::find_if(lane.begin(), lane.end(), fits);
    if (row == lane.end()) {
      const int number = static_cast<int>(rows.names.size());
      rows.names.push_back(lane.empty() ? std::string(span.lane)
                                        : absl::StrCat(span.lane, " ", lane.size() + 1));
      row = lane.insert(lane.end(), {number, {}});
    }
    row->open_ends.push_back(span.end);
    rows.row_of_span.push_back(row->number);
  }
  return rows;
}

std::string TraceRecorder::ToJson(std::vector<Span> spans, int64_t num_dropped) const {
  // If two spans begin together, the longer span encloses the other.
  std::stable_sort(spans.begin(), spans.end(), [](const Span& a, const Span& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end > b.end;
  });
  const Rows rows = AssignRows(spans);
  std::string json = absl::StrCat(kTraceBegin, SoftwareVersion(),
                                  "\",\"spans_dropped\":", num_dropped, "},\n\"traceEvents\":[\n");
  absl::StrAppend(&json,
                  Metadata("process_name", 0, absl::StrCat("\"name\":", Quoted(options_.process))));
  for (size_t row = 0; row < rows.names.size(); ++row) {
    const int number = static_cast<int>(row);
    absl::StrAppend(
        &json, ",\n",
        Metadata("thread_name", number, absl::StrCat("\"name\":", Quoted(rows.names[row]))), ",\n",
        Metadata("thread_sort_index", number, absl::StrCat("\"sort_index\":", number)));
  }
  for (size_t i = 0; i < spans.size(); ++i) {
    const Span& span = spans[i];
    absl::StrAppend(&json, ",\n{\"ph\":\"X\",\"pid\":", getpid(), ",\"tid\":", rows.row_of_span[i],
                    ",\"cat\":", Quoted(span.lane), ",\"name\":", Quoted(span.name),
                    ",\"ts\":", Microseconds(absl::ToUnixNanos(span.begin)),
                    ",\"dur\":", Microseconds(absl::ToInt64Nanoseconds(span.end - span.begin)),
                    ",\"args\":", Arguments(span.tag), "}");
  }
  absl::StrAppend(&json, "\n]}\n");
  return json;
}

}  // namespace lodestar::process

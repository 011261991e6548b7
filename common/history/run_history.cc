// SPDX-License-Identifier: Apache-2.0

#include "common/history/run_history.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <iterator>
#include <memory>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/runtime/file_io.h"
#include "common/runtime/json.h"
#include "common/runtime/peer_text.h"
#include "common/runtime/status_macros.h"

namespace lodestar::history {
namespace {

// The application id marks a database as ours. The form is the version of its tables.
constexpr int kApplication = 0x4c4f4445;  // "LODE"
constexpr int kForm = 1;
constexpr int kPatienceMs = 2000;  // maximum wait for another process that uses the file

// The definitions of our tables. SQLite keeps the text after CREATE TABLE unchanged. A file is a
// history only if its texts are among these.
constexpr absl::string_view kTables[] = {
    "trained (first_round INTEGER, last_round INTEGER, samples INTEGER, seconds REAL, loss REAL,"
    " num_losses INTEGER)",
    "heldout (round INTEGER, samples INTEGER, seconds REAL, loss REAL)",
    "events (time_us INTEGER, is_alarm INTEGER, text TEXT)",
    "scale (rounds_per_point INTEGER)",
    "sample_size (tokens INTEGER)",
    "learning_rates (rate REAL)",  // one rate per row of `trained`, in the same order
    "loss_unit (is_bits_per_byte INTEGER)",
    "settings (flag TEXT, value TEXT)",
};

// Limits for reading, because the file may come from anywhere. They are far above the sizes that we
// write, and small enough for memory. SQLite runs kStepsPerLook instructions, and then calls a
// function of ours. After kMaxLooks such calls reading fails.
constexpr int kMaxRows = 10'000;            // maximum number of rows of one table
constexpr int kMaxValueBytes = 256 * 1024;  // maximum size of one field
constexpr size_t kMaxTextBytes = 4096;      // maximum bytes of an event; the rest is cut off
constexpr size_t kMaxSettings = 500;
constexpr size_t kMaxSettingBytes = 512;  // maximum bytes of a flag or a value; the rest is cut off
constexpr int kStepsPerLook = 10'000;     // number of instructions of SQLite
constexpr int kMaxLooks = 2000;           // maximum number of calls of the function: about a second
// Maximum number of rounds or samples in one row. The sum over kMaxRows rows fits into int64_t.
constexpr int64_t kMaxCount = int64_t{1} << 48;

absl::StatusCode CodeOf(int result) {
  switch (result) {
    case SQLITE_CORRUPT:
    case SQLITE_INTERRUPT:  // reading took too long: see LimitReading()
    case SQLITE_NOTADB:
    case SQLITE_TOOBIG:
      return absl::StatusCode::kDataLoss;
    case SQLITE_FULL:
      return absl::StatusCode::kResourceExhausted;
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return absl::StatusCode::kUnavailable;
    default:
      return absl::StatusCode::kUnknown;
  }
}

absl::Status Foreign(const std::string& path) {
  return absl::DataLossError(absl::StrCat(path,
                                          " is not a run history that this release can read: it is "
                                          "damaged, or another program wrote it"));
}

// Checks that this process may write the file `path` or create it. SQLite cannot report this: if it
// cannot open the file for writing, it tries to open it for reading only, and reports the errno of
// that second attempt.
absl::Status CheckWritable(const std::string& path) {
  constexpr mode_t kMode = 0644;
  const int descriptor = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, kMode);
  if (descriptor < 0) return ErrnoStatus(errno, "open", path);
  close(descriptor);
  return absl::OkStatus();
}

class Database {
 public:
  static absl::StatusOr<Database> Open(const std::string& path, int flags) {
    sqlite3* raw = nullptr;
    const int result = sqlite3_open_v2(path.c_str(), &raw, flags, /*zVfs=*/nullptr);
    Database database(raw, path);
    if (result != SQLITE_OK) return database.Error(result);
    database.is_open_ = true;
    sqlite3_busy_timeout(raw, kPatienceMs);
    return database;
  }

  // Opens the content of a file, `image`, for reading. `image` must outlive the database.
  static absl::StatusOr<Database> OpenImage(absl::string_view image, const std::string& path) {
    ASSIGN_OR_RETURN(Database database,
                     Open(":memory:", SQLITE_OPEN_READWRITE | SQLITE_OPEN_MEMORY));
    database.path_ = path;
    // The database is read-only, so SQLite does not write to the image.
    auto* const bytes = reinterpret_cast<unsigned char*>(const_cast<char*>(image.data()));
    const auto size = static_cast<sqlite3_int64>(image.size());
    const int result = sqlite3_deserialize(database.handle_.get(), "main", bytes, size, size,
                                           SQLITE_DESERIALIZE_READONLY);
    if (result != SQLITE_OK) return database.Error(result);
    return database;
  }

  // Limits time and memory of reading, whatever the file holds.
  void LimitReading() {
    sqlite3* const raw = handle_.get();
    sqlite3_limit(raw, SQLITE_LIMIT_LENGTH, kMaxValueBytes);
    sqlite3_db_config(raw, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
    sqlite3_db_config(raw, SQLITE_DBCONFIG_ENABLE_VIEW, 0, nullptr);
    sqlite3_progress_handler(
        raw, kStepsPerLook,
        [](void* looks) { return ++*static_cast<int*>(looks) > kMaxLooks ? 1 : 0; }, looks_.get());
  }

  absl::Status Execute(const std::string& statement) {
    const int result = sqlite3_exec(handle_.get(), statement.c_str(), nullptr, nullptr, nullptr);
    return result == SQLITE_OK ? absl::OkStatus() : Error(result);
  }

  // Runs a statement whose result is one row with one number.
  absl::StatusOr<int64_t> Number(const std::string& statement) {
    int64_t number = 0;
    RETURN_IF_ERROR(ForEachRow(
        statement, [&number](sqlite3_stmt* row) { number = sqlite3_column_int64(row, 0); }));
    return number;
  }

  // Calls `take` for each row. Errors also: DataLoss (more than kMaxRows rows).
  absl::Status ForEachRow(const std::string& statement,
                          const std::function<void(sqlite3_stmt* row)>& take) {
    ASSIGN_OR_RETURN(const Statement prepared, Prepare(statement));
    for (int num_rows = 0; num_rows <= kMaxRows; ++num_rows) {
      const int result = sqlite3_step(prepared.get());
      if (result == SQLITE_DONE) return absl::OkStatus();
      if (result != SQLITE_ROW) return Error(result);
      take(prepared.get());
    }
    return absl::DataLossError(absl::StrCat(
        path_, " has a table with more than ", kMaxRows,
        " rows, the maximum for a run history: it is damaged, or another program wrote it"));
  }

  // Inserts rows. `bind` sets the values of row `i`.
  absl::Status Insert(const std::string& statement, size_t num_rows,
                      const std::function<void(sqlite3_stmt* row, size_t i)>& bind) {
    ASSIGN_OR_RETURN(const Statement prepared, Prepare(statement));
    for (size_t i = 0; i < num_rows; ++i) {
      bind(prepared.get(), i);
      if (const int result = sqlite3_step(prepared.get()); result != SQLITE_DONE) {
        return Error(result);
      }
      sqlite3_reset(prepared.get());
    }
    return absl::OkStatus();
  }

  const std::string& path() const { return path_; }

 private:
  using Statement = std::unique_ptr<sqlite3_stmt, int (*)(sqlite3_stmt*)>;

  Database(sqlite3* handle, std::string path)
      : handle_(handle, &sqlite3_close), path_(std::move(path)) {}

  absl::StatusOr<Statement> Prepare(const std::string& statement) {
    sqlite3_stmt* raw = nullptr;
    const int result = sqlite3_prepare_v2(handle_.get(), statement.c_str(), /*nByte=*/-1, &raw,
                                          /*pzTail=*/nullptr);
    if (result != SQLITE_OK) return Error(result);
    return Statement(raw, &sqlite3_finalize);
  }

  absl::Status Error(int result) const {
    const int why = sqlite3_system_errno(handle_.get());
    if (result == SQLITE_CANTOPEN && why != 0) {
      // is_open_ means that SQLite could open the file itself. Then it could not open the journal.
      if (is_open_) RETURN_IF_ERROR(CheckWritable(absl::StrCat(path_, "-journal")));
      return ErrnoStatus(why, "open", path_);
    }
    return absl::Status(CodeOf(result), absl::StrCat(path_, ": ", sqlite3_errmsg(handle_.get())));
  }

  // Counter of the callback that LimitReading() gives to SQLite. It must outlive the database
  // handle.
  std::unique_ptr<int> looks_ = std::make_unique<int>(0);
  std::unique_ptr<sqlite3, int (*)(sqlite3*)> handle_;
  std::string path_;
  bool is_open_ = false;
};

std::string TextOf(sqlite3_stmt* row, int column) {
  const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(row, column));
  if (text == nullptr) return "";
  const auto size = static_cast<size_t>(sqlite3_column_bytes(row, column));
  return std::string(text, std::min(size, kMaxTextBytes));
}

// Returns true if the database has our tables and nothing else. Returns false if the database is
// empty, for example because the disk was full when it was created. Returns an error for any other
// content.
absl::StatusOr<bool> IsFilled(Database& database) {
  bool is_filled = false;
  bool is_foreign = false;
  RETURN_IF_ERROR(database.ForEachRow("SELECT sql FROM sqlite_master", [&](sqlite3_stmt* row) {
    is_filled = true;
    const std::string definition = TextOf(row, 0);
    is_foreign |= std::none_of(std::begin(kTables), std::end(kTables), [&](absl::string_view ours) {
      return definition == absl::StrCat("CREATE TABLE ", ours);
    });
  }));
  if (!is_filled) return false;
  ASSIGN_OR_RETURN(const int64_t application, database.Number("PRAGMA application_id"));
  ASSIGN_OR_RETURN(const int64_t form, database.Number("PRAGMA user_version"));
  if (application == kApplication && form > kForm) {
    return absl::UnimplementedError(absl::StrCat(
        database.path(), " was written by a later release: it has format ", form,
        ", and this release reads format ", kForm, "; read it with the psctl of that release"));
  }
  if (is_foreign || application != kApplication || form != kForm) return Foreign(database.path());
  return true;
}

// `text` must outlive the statement.
void BindText(sqlite3_stmt* row, int column, const std::string& text) {
  sqlite3_bind_text(row, column, text.data(), static_cast<int>(text.size()), SQLITE_STATIC);
}

absl::Status ReplaceRows(Database& database, const RunHistory& history) {
  RETURN_IF_ERROR(database.Execute(
      absl::StrCat("PRAGMA application_id = ", kApplication, "; PRAGMA user_version = ", kForm)));
  for (const absl::string_view table : kTables) {
    const absl::string_view name = table.substr(0, table.find(' '));
    RETURN_IF_ERROR(database.Execute(
        absl::StrCat("CREATE TABLE IF NOT EXISTS ", table, "; DELETE FROM ", name)));
  }
  RETURN_IF_ERROR(database.Execute(
      absl::StrCat("INSERT INTO scale VALUES (", history.rounds_per_point,
                   "); INSERT INTO sample_size VALUES (", history.tokens_per_sample, ")")));
  RETURN_IF_ERROR(database.Insert("INSERT INTO trained VALUES (?, ?, ?, ?, ?, ?)",
                                  history.trained.size(), [&history](sqlite3_stmt* row, size_t i) {
                                    const HistoryPoint& point = history.trained[i];
                                    sqlite3_bind_int64(row, 1, point.first_round.value());
                                    sqlite3_bind_int64(row, 2, point.last_round.value());
                                    sqlite3_bind_int64(row, 3, point.samples);
                                    sqlite3_bind_double(row, 4, point.seconds);
                                    sqlite3_bind_double(row, 5, point.train_loss);
                                    sqlite3_bind_int64(row, 6, point.num_losses);
                                  }));
  RETURN_IF_ERROR(database.Insert("INSERT INTO heldout VALUES (?, ?, ?, ?)", history.heldout.size(),
                                  [&history](sqlite3_stmt* row, size_t i) {
                                    const HeldoutPoint& point = history.heldout[i];
                                    sqlite3_bind_int64(row, 1, point.round.value());
                                    sqlite3_bind_int64(row, 2, point.samples);
                                    sqlite3_bind_double(row, 3, point.seconds);
                                    sqlite3_bind_double(row, 4, point.loss);
                                  }));
  RETURN_IF_ERROR(database.Insert("INSERT INTO learning_rates VALUES (?)", history.trained.size(),
                                  [&history](sqlite3_stmt* row, size_t i) {
                                    sqlite3_bind_double(row, 1, history.trained[i].learning_rate);
                                  }));
  if (history.loss_unit.has_value()) {
    RETURN_IF_ERROR(database.Execute(
        absl::StrCat("INSERT INTO loss_unit VALUES (",
                     *history.loss_unit == job::LossUnit::kBitsPerByte ? 1 : 0, ")")));
  }
  RETURN_IF_ERROR(database.Insert("INSERT INTO settings VALUES (?, ?)", history.settings.size(),
                                  [&history](sqlite3_stmt* row, size_t i) {
                                    BindText(row, 1, history.settings[i].flag);
                                    BindText(row, 2, history.settings[i].value);
                                  }));
  return database.Insert("INSERT INTO events VALUES (?, ?, ?)", history.events.size(),
                         [&history](sqlite3_stmt* row, size_t i) {
                           const HistoryEvent& event = history.events[i];
                           sqlite3_bind_int64(row, 1, absl::ToUnixMicros(event.time));
                           sqlite3_bind_int(row, 2, event.is_alarm ? 1 : 0);
                           BindText(row, 3, event.text);
                         });
}

// Returns true if all counts are in the range that a run can have.
bool HasPossibleCounts(const RunHistory& history) {
  const auto is_count = [](int64_t value) { return value >= 0 && value <= kMaxCount; };
  return history.rounds_per_point >= 1 && is_count(history.rounds_per_point) &&
         is_count(history.tokens_per_sample) &&
         std::all_of(history.trained.begin(), history.trained.end(),
                     [&](const HistoryPoint& point) {
                       return is_count(point.first_round.value()) &&
                              is_count(point.last_round.value()) && is_count(point.samples) &&
                              is_count(point.num_losses);
                     }) &&
         std::all_of(history.heldout.begin(), history.heldout.end(),
                     [&](const HeldoutPoint& point) {
                       return is_count(point.round.value()) && is_count(point.samples);
                     });
}

absl::StatusOr<RunHistory> ReadTables(Database& database) {
  database.LimitReading();
  RunHistory history;
  ASSIGN_OR_RETURN(const bool is_filled, IsFilled(database));
  if (!is_filled) return history;
  ASSIGN_OR_RETURN(history.rounds_per_point, database.Number("SELECT rounds_per_point FROM scale"));
  // Files of earlier releases lack some tables.
  const auto has_table = [&database](absl::string_view name) -> absl::StatusOr<bool> {
    ASSIGN_OR_RETURN(
        const int64_t has,
        database.Number(absl::StrCat("SELECT 1 FROM sqlite_master WHERE name = '", name, "'")));
    return has != 0;
  };
  ASSIGN_OR_RETURN(const bool has_sample_size, has_table("sample_size"));
  if (has_sample_size) {
    ASSIGN_OR_RETURN(history.tokens_per_sample, database.Number("SELECT tokens FROM sample_size"));
  }
  RETURN_IF_ERROR(
      database.ForEachRow("SELECT * FROM trained ORDER BY rowid", [&history](sqlite3_stmt* row) {
        history.trained.push_back({Round(sqlite3_column_int64(row, 0)),
                                   Round(sqlite3_column_int64(row, 1)),
                                   sqlite3_column_int64(row, 2), sqlite3_column_double(row, 3),
                                   sqlite3_column_double(row, 4), sqlite3_column_int64(row, 5)});
      }));
  ASSIGN_OR_RETURN(const bool has_learning_rates, has_table("learning_rates"));
  if (has_learning_rates) {
    size_t num_rates = 0;
    RETURN_IF_ERROR(database.ForEachRow(
        "SELECT * FROM learning_rates ORDER BY rowid", [&history, &num_rates](sqlite3_stmt* row) {
          if (num_rates < history.trained.size()) {
            history.trained[num_rates].learning_rate = sqlite3_column_double(row, 0);
          }
          ++num_rates;
        }));
    if (num_rates != history.trained.size()) return Foreign(database.path());
  }
  ASSIGN_OR_RETURN(const bool has_loss_unit, has_table("loss_unit"));
  if (has_loss_unit) {
    RETURN_IF_ERROR(database.ForEachRow("SELECT * FROM loss_unit", [&history](sqlite3_stmt* row) {
      history.loss_unit =
          sqlite3_column_int(row, 0) != 0 ? job::LossUnit::kBitsPerByte : job::LossUnit::kNats;
    }));
  }
  ASSIGN_OR_RETURN(const bool has_settings, has_table("settings"));
  if (has_settings) {
    RETURN_IF_ERROR(
        database.ForEachRow("SELECT * FROM settings ORDER BY rowid", [&history](sqlite3_stmt* row) {
          if (history.settings.size() > kMaxSettings) return;
          history.settings.push_back({PeerText(TextOf(row, 0), kMaxSettingBytes),
                                      PeerText(TextOf(row, 1), kMaxSettingBytes)});
        }));
    if (history.settings.size() > kMaxSettings) return Foreign(database.path());
  }
  RETURN_IF_ERROR(
      database.ForEachRow("SELECT * FROM heldout ORDER BY rowid", [&history](sqlite3_stmt* row) {
        history.heldout.push_back({Round(sqlite3_column_int64(row, 0)),
                                   sqlite3_column_int64(row, 1), sqlite3_column_double(row, 2),
                                   sqlite3_column_double(row, 3)});
      }));
  RETURN_IF_ERROR(
      database.ForEachRow("SELECT * FROM events ORDER BY rowid", [&history](sqlite3_stmt* row) {
        history.events.push_back({absl::FromUnixMicros(sqlite3_column_int64(row, 0)),
                                  sqlite3_column_int(row, 1) != 0,
                                  PeerText(TextOf(row, 2), kMaxTextBytes)});
      }));
  if (!HasPossibleCounts(history)) return Foreign(database.path());
  return history;
}

Json EventToJson(const HistoryEvent& event) {
  return {{"time", absl::ToDoubleSeconds(event.time - absl::UnixEpoch())},
          {"alarm", event.is_alarm},
          {"text", event.text}};
}

}  // namespace

std::string HistoryJson(const RunHistory& history) {
  struct Curve {
    Json rounds = Json::array();
    Json samples = Json::array();
    Json seconds = Json::array();
    Json losses = Json::array();

    Json Get() && {
      return {{"round", std::move(rounds)},
              {"samples", std::move(samples)},
              {"seconds", std::move(seconds)},
              {"loss", std::move(losses)}};
    }
  };
  Curve trained;
  Json learning_rates = Json::array();
  for (const HistoryPoint& point : history.trained) {
    trained.rounds.push_back(point.last_round.value());
    trained.samples.push_back(point.samples);
    trained.seconds.push_back(point.seconds);
    trained.losses.push_back(point.num_losses > 0 ? Json(point.train_loss) : Json());
    learning_rates.push_back(point.learning_rate > 0.0 ? Json(point.learning_rate) : Json());
  }
  Curve heldout;
  for (const HeldoutPoint& point : history.heldout) {
    heldout.rounds.push_back(point.round.value());
    heldout.samples.push_back(point.samples);
    heldout.seconds.push_back(point.seconds);
    heldout.losses.push_back(point.loss);
  }
  Json events = Json::array();
  for (const HistoryEvent& event : history.events) events.push_back(EventToJson(event));
  Json settings = Json::object();
  for (const job::JobSetting& setting : history.settings) settings[setting.flag] = setting.value;
  Json trained_columns = std::move(trained).Get();
  trained_columns["learning_rate"] = std::move(learning_rates);
  return FormatJson(
      {{"rounds_per_point", history.rounds_per_point},
       {"tokens_per_sample", history.tokens_per_sample},
       {"loss_unit",
        history.loss_unit.has_value() ? Json(job::LossUnitName(*history.loss_unit)) : Json()},
       {"settings", std::move(settings)},
       {"trained", std::move(trained_columns)},
       {"heldout", std::move(heldout).Get()},
       {"events", std::move(events)}});
}

std::string EventJson(const HistoryEvent& event) { return FormatJson(EventToJson(event)); }

absl::Status WriteHistory(const std::string& path, const RunHistory& history) {
  RETURN_IF_ERROR(CheckWritable(path));
  ASSIGN_OR_RETURN(Database database,
                   Database::Open(path, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE));
  RETURN_IF_ERROR(IsFilled(database).status());
  // With one transaction, a reader at the same time or after a crash sees either all of the old
  // rows or all of the new. The history is not training state, so a power failure may lose the last
  // write.
  RETURN_IF_ERROR(database.Execute("PRAGMA synchronous = OFF; BEGIN IMMEDIATE"));
  RETURN_IF_ERROR(ReplaceRows(database, history));
  return database.Execute("COMMIT");
}

absl::StatusOr<RunHistory> ReadHistory(const std::string& path) {
  struct stat facts = {};
  if (stat(path.c_str(), &facts) != 0) return ErrnoStatus(errno, "look at", path);
  if (!S_ISREG(facts.st_mode)) {
    return absl::FailedPreconditionError(absl::StrCat(path, " is not a regular file"));
  }
  // The file is opened for writing also, so that SQLite undoes what a killed process has left half
  // written.
  ASSIGN_OR_RETURN(Database database, Database::Open(path, SQLITE_OPEN_READWRITE));
  RETURN_IF_ERROR(database.Execute("BEGIN"));
  return ReadTables(database);
}

bool MayBeHistory(absl::string_view beginning) {
  // https://www.sqlite.org/fileformat2.html, "The Database Header".
  constexpr absl::string_view kMagic("SQLite format 3\0", 16);
  // Offset of a byte in the header. 1 means that SQLite writes with a rollback journal and not with
  // a write-ahead log (WAL). All our files have 1.
  constexpr size_t kFormOfWrites = 18;
  constexpr size_t kApplicationId = 68;
  constexpr absl::string_view kOurs("LODE");  // kApplication as bytes, the highest byte first
  if (beginning.empty()) return true;
  return beginning.size() >= kHistoryHeaderBytes && absl::StartsWith(beginning, kMagic) &&
         beginning[kFormOfWrites] == 1 && beginning.substr(kApplicationId, kOurs.size()) == kOurs;
}

absl::StatusOr<RunHistory> ParseHistory(absl::string_view image, const std::string& path) {
  if (!MayBeHistory(image)) return Foreign(path);
  if (image.empty()) return RunHistory();
  ASSIGN_OR_RETURN(Database database, Database::OpenImage(image, path));
  return ReadTables(database);
}

}  // namespace lodestar::history

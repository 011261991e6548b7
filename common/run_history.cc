#include "common/run_history.h"

#include <sqlite3.h>
#include <sys/stat.h>

#include <functional>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/json.h"
#include "common/status_macros.h"

namespace lodestar {
namespace {

// What marks a database as ours, and the form of its tables.
constexpr int kApplication = 0x4c4f4445;  // "LODE"
constexpr int kForm = 1;
constexpr int kPatienceMs = 2000;  // with another process that has it open

absl::StatusCode CodeOf(int result) {
  switch (result) {
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
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

class Database {
 public:
  static absl::StatusOr<Database> Open(const std::string& path, int flags) {
    sqlite3* raw = nullptr;
    const int result = sqlite3_open_v2(path.c_str(), &raw, flags, /*zVfs=*/nullptr);
    Database database(raw, path);
    if (result != SQLITE_OK) return database.Error(result);
    sqlite3_busy_timeout(raw, kPatienceMs);
    return database;
  }

  absl::Status Execute(const std::string& statement) {
    const int result = sqlite3_exec(handle_.get(), statement.c_str(), nullptr, nullptr, nullptr);
    return result == SQLITE_OK ? absl::OkStatus() : Error(result);
  }

  // Of a statement with one row of one number.
  absl::StatusOr<int64_t> Number(const std::string& statement) {
    int64_t number = 0;
    RETURN_IF_ERROR(ForEachRow(
        statement, [&number](sqlite3_stmt* row) { number = sqlite3_column_int64(row, 0); }));
    return number;
  }

  absl::Status ForEachRow(const std::string& statement,
                          const std::function<void(sqlite3_stmt* row)>& take) {
    ASSIGN_OR_RETURN(const Statement prepared, Prepare(statement));
    while (true) {
      const int result = sqlite3_step(prepared.get());
      if (result == SQLITE_DONE) return absl::OkStatus();
      if (result != SQLITE_ROW) return Error(result);
      take(prepared.get());
    }
  }

  // `bind` gives the values of row `i`.
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

  absl::Status Foreign() const {
    return absl::DataLossError(absl::StrCat(path_, " is no history of this release"));
  }

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
    return absl::Status(CodeOf(result), absl::StrCat(path_, ": ", sqlite3_errmsg(handle_.get())));
  }

  std::unique_ptr<sqlite3, int (*)(sqlite3*)> handle_;
  std::string path_;
};

std::string TextOf(sqlite3_stmt* row, int column) {
  const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(row, column));
  return text == nullptr ? "" : std::string(text, sqlite3_column_bytes(row, column));
}

// Whether it has our tables. One that has none at all, as after a disk was full, is ours to fill.
absl::StatusOr<bool> IsFilled(Database& database) {
  ASSIGN_OR_RETURN(const int64_t tables, database.Number("SELECT count(*) FROM sqlite_master"));
  if (tables == 0) return false;
  ASSIGN_OR_RETURN(const int64_t application, database.Number("PRAGMA application_id"));
  ASSIGN_OR_RETURN(const int64_t form, database.Number("PRAGMA user_version"));
  if (application != kApplication || form != kForm) return database.Foreign();
  return true;
}

absl::Status ReplaceRows(Database& database, const RunHistory& history) {
  RETURN_IF_ERROR(database.Execute(absl::StrCat(
      "PRAGMA application_id = ", kApplication, "; PRAGMA user_version = ", kForm,
      ";"
      "CREATE TABLE IF NOT EXISTS trained (first_round INTEGER, last_round INTEGER,"
      " samples INTEGER, seconds REAL, loss REAL, num_losses INTEGER);"
      "CREATE TABLE IF NOT EXISTS heldout (round INTEGER, samples INTEGER, seconds REAL, loss "
      "REAL);"
      "CREATE TABLE IF NOT EXISTS events (time_us INTEGER, is_alarm INTEGER, text TEXT);"
      "CREATE TABLE IF NOT EXISTS scale (rounds_per_point INTEGER);"
      "DELETE FROM trained; DELETE FROM heldout; DELETE FROM events; DELETE FROM scale;"
      "INSERT INTO scale VALUES (",
      history.rounds_per_point, ");")));
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
  return database.Insert("INSERT INTO events VALUES (?, ?, ?)", history.events.size(),
                         [&history](sqlite3_stmt* row, size_t i) {
                           const HistoryEvent& event = history.events[i];
                           sqlite3_bind_int64(row, 1, absl::ToUnixMicros(event.time));
                           sqlite3_bind_int(row, 2, event.is_alarm ? 1 : 0);
                           sqlite3_bind_text(row, 3, event.text.data(),
                                             static_cast<int>(event.text.size()), SQLITE_STATIC);
                         });
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
  for (const HistoryPoint& point : history.trained) {
    trained.rounds.push_back(point.last_round.value());
    trained.samples.push_back(point.samples);
    trained.seconds.push_back(point.seconds);
    trained.losses.push_back(point.num_losses > 0 ? Json(point.train_loss) : Json());
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
  return FormatJson({{"rounds_per_point", history.rounds_per_point},
                     {"trained", std::move(trained).Get()},
                     {"heldout", std::move(heldout).Get()},
                     {"events", std::move(events)}});
}

std::string EventJson(const HistoryEvent& event) { return FormatJson(EventToJson(event)); }

absl::Status WriteHistory(const std::string& path, const RunHistory& history) {
  ASSIGN_OR_RETURN(Database database,
                   Database::Open(path, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE));
  RETURN_IF_ERROR(IsFilled(database).status());
  // One transaction: who reads meanwhile, or after a crash, has all of the old or of the new. It is
  // no training state: a loss of power may take the last one.
  RETURN_IF_ERROR(database.Execute("PRAGMA synchronous = OFF; BEGIN IMMEDIATE"));
  RETURN_IF_ERROR(ReplaceRows(database, history));
  return database.Execute("COMMIT");
}

absl::StatusOr<RunHistory> ReadHistory(const std::string& path) {
  struct stat facts = {};
  if (stat(path.c_str(), &facts) != 0) {
    return absl::NotFoundError(absl::StrCat("there is no ", path));
  }
  // Not for reading alone: what a process that was killed has left half written is undone.
  ASSIGN_OR_RETURN(Database database, Database::Open(path, SQLITE_OPEN_READWRITE));
  RETURN_IF_ERROR(database.Execute("BEGIN"));
  RunHistory history;
  ASSIGN_OR_RETURN(const bool is_filled, IsFilled(database));
  if (!is_filled) return history;
  ASSIGN_OR_RETURN(history.rounds_per_point, database.Number("SELECT rounds_per_point FROM scale"));
  RETURN_IF_ERROR(
      database.ForEachRow("SELECT * FROM trained ORDER BY rowid", [&history](sqlite3_stmt* row) {
        history.trained.push_back({Round(sqlite3_column_int64(row, 0)),
                                   Round(sqlite3_column_int64(row, 1)),
                                   sqlite3_column_int64(row, 2), sqlite3_column_double(row, 3),
                                   sqlite3_column_double(row, 4), sqlite3_column_int64(row, 5)});
      }));
  RETURN_IF_ERROR(
      database.ForEachRow("SELECT * FROM heldout ORDER BY rowid", [&history](sqlite3_stmt* row) {
        history.heldout.push_back({Round(sqlite3_column_int64(row, 0)),
                                   sqlite3_column_int64(row, 1), sqlite3_column_double(row, 2),
                                   sqlite3_column_double(row, 3)});
      }));
  RETURN_IF_ERROR(
      database.ForEachRow("SELECT * FROM events ORDER BY rowid", [&history](sqlite3_stmt* row) {
        history.events.push_back({absl::FromUnixMicros(sqlite3_column_int64(row, 0)),
                                  sqlite3_column_int(row, 1) != 0, TextOf(row, 2)});
      }));
  if (history.rounds_per_point < 1) return database.Foreign();
  return history;
}

}  // namespace lodestar

// SPDX-License-Identifier: Apache-2.0

#include "server/durability/replica/replication.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/logging/logging.h"
#include "common/runtime/bytes_text.h"
#include "common/runtime/status_macros.h"
#include "server/durability/journal/journal_reader.h"
#include "server/durability/journal/journal_segments.h"

namespace lodestar::replica {
namespace {

// Interval at which Watch() checks that the replica answers.
constexpr absl::Duration kLook = absl::Seconds(1);
// Minimum time between two attempts to connect. Each attempt compares all files of the two sides.
constexpr absl::Duration kTryAgain = absl::Milliseconds(200);
// Time after which the replica counts as lost if it has not answered. A disk may need long to sync
// gigabytes.
constexpr absl::Duration kLongestAnswer = absl::Seconds(30);
// Maximum size of a watermark file that is read. A valid one is smaller.
constexpr int64_t kMaxWatermarkBytes = 4096;

// Returns the number up to which both sides had all records on disk, as the replica's watermark
// says. Returns 0 if the replica has no watermark.
absl::StatusOr<uint64_t> DurableAt(ReplicaConnection& connection,
                                   const std::vector<FileEntry>& files,
                                   const MirroredPath& watermark) {
  const auto file = std::find_if(files.begin(), files.end(), [&](const FileEntry& entry) {
    return entry.path == watermark && !entry.is_directory;
  });
  if (file == files.end() || file->num_bytes > kMaxWatermarkBytes) return 0;
  std::string bytes;
  RETURN_IF_ERROR(connection.ReadFile(watermark, [&bytes](absl::string_view block) {
    absl::StrAppend(&bytes, block);
    return absl::OkStatus();
  }));
  return journal::DurableByWatermark(bytes);
}

}  // namespace

Replication::Pass::~Pass() {
  if (owner_ != nullptr) owner_->Leave();
}

absl::Status Replication::Pass::Note(const absl::Status& status) {
  if (status.ok()) return status;
  owner_->Lose(connection_, status);
  return owner_->OfReplica(status);
}

absl::Status Replication::Pass::Send(FileChange change) {
  return Note(lane_->Send(std::move(change)));
}

absl::StatusOr<uint64_t> Replication::Pass::Ask() {
  absl::StatusOr<uint64_t> question = lane_->Ask();
  RETURN_IF_ERROR(Note(question.status()));
  return question;
}

absl::Status Replication::Pass::Await(uint64_t question) {
  {
    absl::MutexLock lock(&owner_->mutex_);
    owner_->awaited_since_[this] = owner_->deps_.clock->Now();
  }
  const absl::Status answered = lane_->Await(question);
  {
    absl::MutexLock lock(&owner_->mutex_);
    owner_->awaited_since_.erase(this);
  }
  return Note(answered);
}

absl::Status Replication::Pass::Do(FileChange change) {
  RETURN_IF_ERROR(Send(std::move(change)));
  ASSIGN_OR_RETURN(const uint64_t question, Ask());
  return Await(question);
}

// A File writes to this server's disk and to the replica. Sync() waits for both at the same time.
class Replication::File final : public storage::WritableFile {
 public:
  File(Disk* disk, std::unique_ptr<storage::WritableFile> here, uint64_t number,
       std::shared_ptr<ReplicaLane> lane)
      : disk_(disk), here_(std::move(here)), number_(number), lane_(std::move(lane)) {}
  ~File() override {
    if (!is_closed_) Close().IgnoreError();
  }

  absl::Status Append(absl::string_view bytes) override;
  absl::Status Sync() override;
  absl::Status Close() override;

 private:
  absl::StatusOr<Pass> Enter() const;

  Disk* const disk_;
  const std::unique_ptr<storage::WritableFile> here_;
  const uint64_t number_;
  // Lane that was used to create the file. If the replica was lost since then, the current lane is
  // another one, and writes to this File fail.
  const std::shared_ptr<ReplicaLane> lane_;
  bool is_closed_ = false;
};

class Replication::Disk final : public storage::FileSystem {
 public:
  Disk(Replication* owner, size_t index) : owner_(owner), index_(index) {}

  absl::StatusOr<Pass> Enter() const { return owner_->Enter(index_); }

  absl::StatusOr<std::unique_ptr<storage::WritableFile>> Create(const std::string& path,
                                                                IfExists if_exists) override {
    const std::optional<MirroredPath> there = Find(path);
    if (!there.has_value()) return here().Create(path, if_exists);
    ASSIGN_OR_RETURN(Pass pass, Enter());
    ASSIGN_OR_RETURN(std::unique_ptr<storage::WritableFile> file, here().Create(path, if_exists));
    const uint64_t number = ++owner_->last_file_;
    RETURN_IF_ERROR(pass.Send(CreateFileChange{number, *there, if_exists == IfExists::kGoOn}));
    return std::make_unique<File>(this, std::move(file), number, pass.lane());
  }
  absl::Status CreateDirectories(const std::string& path) override {
    return Change(
        path, [&] { return here().CreateDirectories(path); },
        [](MirroredPath there) { return CreateDirectoriesChange{std::move(there)}; });
  }
  absl::Status Rename(const std::string& from, const std::string& to) override {
    return Change(
        from, [&] { return here().Rename(from, to); },
        [&](MirroredPath there) {
          return RenameChange{std::move(there), Find(to).value_or(MirroredPath{})};
        });
  }
  absl::Status RemoveAll(const std::string& path) override {
    return Change(
        path, [&] { return here().RemoveAll(path); },
        [](MirroredPath there) { return RemoveChange{std::move(there)}; });
  }
  absl::Status SyncDirectory(const std::string& path) override {
    return Change(
        path, [&] { return here().SyncDirectory(path); },
        [](MirroredPath there) { return SyncDirectoryChange{std::move(there)}; });
  }

  absl::StatusOr<storage::FileBytes> Map(const std::string& path) override {
    return here().Map(path);
  }
  absl::Status Read(const std::string& path,
                    absl::FunctionRef<absl::Status(absl::string_view block)> take) override {
    return here().Read(path, take);
  }
  absl::StatusOr<std::unique_ptr<storage::HeldFile>> Hold(const std::string& path) override {
    return here().Hold(path);
  }
  absl::StatusOr<std::string> ReadWholeFile(const std::string& path, int64_t max_bytes) override {
    return here().ReadWholeFile(path, max_bytes);
  }
  absl::StatusOr<std::vector<std::string>> List(const std::string& directory) override {
    return here().List(directory);
  }
  bool Exists(const std::string& path) override { return here().Exists(path); }
  bool IsDirectory(const std::string& path) override { return here().IsDirectory(path); }
  bool AreSame(const std::string& path, const std::string& other) override {
    return here().AreSame(path, other);
  }
  std::optional<int64_t> FreeBytes(const std::string& path) override {
    return here().FreeBytes(path);
  }
  std::optional<absl::Duration> AgeOf(const std::string& path) override {
    return here().AgeOf(path);
  }

 private:
  storage::FileSystem& here() const { return owner_->here_; }
  std::optional<MirroredPath> Find(const std::string& path) const { return owner_->Find(path); }

  absl::Status Change(const std::string& path, absl::FunctionRef<absl::Status()> here,
                      absl::FunctionRef<FileChange(MirroredPath)> there) {
    std::optional<MirroredPath> found = Find(path);
    if (!found.has_value()) return here();
    ASSIGN_OR_RETURN(Pass pass, Enter());
    RETURN_IF_ERROR(here());
    return pass.Do(there(*std::move(found)));
  }

  Replication* const owner_;
  const size_t index_;
};

absl::StatusOr<Replication::Pass> Replication::File::Enter() const {
  ASSIGN_OR_RETURN(Pass pass, disk_->Enter());
  if (pass.lane() == lane_) return pass;
  return absl::UnavailableError(
      "the connection to the replica was lost while this file was being written");
}

absl::Status Replication::File::Append(absl::string_view bytes) {
  ASSIGN_OR_RETURN(Pass pass, Enter());
  RETURN_IF_ERROR(here_->Append(bytes));
  return pass.Send(AppendChange{number_, std::string(bytes)});
}

absl::Status Replication::File::Sync() {
  ASSIGN_OR_RETURN(Pass pass, Enter());
  RETURN_IF_ERROR(pass.Send(SyncFileChange{number_}));
  ASSIGN_OR_RETURN(const uint64_t question, pass.Ask());
  const absl::Status synced = here_->Sync();
  RETURN_IF_ERROR(pass.Await(question));
  return synced;
}

absl::Status Replication::File::Close() {
  is_closed_ = true;
  RETURN_IF_ERROR(here_->Close());
  ASSIGN_OR_RETURN(Pass pass, Enter());
  return pass.Send(CloseFileChange{number_});
}

Replication::Replication(Config config, Deps deps)
    : config_(std::move(config)),
      deps_(std::move(deps)),
      here_(deps_.disk),
      folders_(std::make_shared<const MirroredFolders>(config_.journal_dir, "")),
      state_(absl::UnavailableError(
          absl::StrCat("not connected to the replica ", config_.replica, " yet"))) {}

Replication::~Replication() { Shutdown(); }

storage::FileSystem* Replication::AddDisk() {
  disks_.push_back(std::make_unique<Disk>(this, disks_.size()));
  return disks_.back().get();
}

std::string Replication::JournalFolder() const {
  return absl::StrCat(config_.journal_dir, "/shard-", config_.shard);
}

absl::Status Replication::state() const {
  absl::MutexLock lock(&mutex_);
  return state_;
}

void Replication::SetState(absl::Status state) {
  absl::MutexLock lock(&mutex_);
  if (!is_over_) state_ = std::move(state);
}

std::optional<MirroredPath> Replication::Find(const std::string& path) const {
  absl::MutexLock lock(&mutex_);
  return folders_->Find(path);
}

absl::StatusOr<Replication::Pass> Replication::Enter(size_t disk) {
  absl::MutexLock lock(&mutex_);
  RETURN_IF_ERROR(state_);
  ++num_passes_;
  return Pass(this, num_connections_, lanes_[disk]);
}

void Replication::Leave() {
  absl::MutexLock lock(&mutex_);
  --num_passes_;
}

void Replication::Lose(uint64_t connection, const absl::Status& why) {
  std::shared_ptr<ReplicaConnection> lost;
  {
    absl::MutexLock lock(&mutex_);
    if (!state_.ok() || connection != num_connections_) return;
    state_ = OfReplica(why);
    is_superseded_ = absl::IsAborted(why);
    was_lost_ = true;
    lost = connection_;
  }
  // Threads that wait for an answer over the lost connection get an error.
  lost->Cancel();
  deps_.on_change(state());
}

absl::Status Replication::OfReplica(const absl::Status& status) const {
  // If bytes were changed during the transfer, they can be sent again: the data on this disk is
  // intact.
  const bool may_retry = absl::IsDataLoss(status);
  return absl::Status(may_retry ? absl::StatusCode::kUnavailable : status.code(),
                      absl::StrCat("replica ", config_.replica, ": ", status.message()));
}

absl::Status Replication::WriteMark(bool has_begun, bool is_whole) {
  const std::vector<uint64_t>& previous = config_.plan.previous;
  ReplicationMark mark;
  mark.side = ReplicationSide::kServer;
  mark.is_whole = is_whole;
  mark.peer = config_.replica;
  mark.since = deps_.now();
  if (has_begun) {
    mark.term = config_.term;
  } else {
    if (!previous.empty()) {
      mark.term = previous.front();
      mark.asked_for.assign(previous.begin() + 1, previous.end());
    }
    mark.asked_for.push_back(config_.term);
  }
  return WriteReplicationMark(here_, JournalFolder(), mark);
}

absl::Status Replication::Connect() {
  {
    const auto is_empty = [this]()
                              ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return num_passes_ == 0; };
    absl::MutexLock lock(&mutex_);
    if (state_.ok() || is_superseded_) return state_;
    mutex_.Await(absl::Condition(&is_empty));
    lanes_.clear();
    connection_ = nullptr;
  }
  std::shared_ptr<ReplicaConnection> connection = deps_.connect();
  {
    absl::MutexLock lock(&mutex_);
    if (is_over_) return state_;
    connection_ = connection;
    ++num_connections_;
  }
  absl::Status equal = Equalise(*connection);
  std::vector<std::shared_ptr<ReplicaLane>> lanes;
  for (size_t i = 0; equal.ok() && i < disks_.size(); ++i) {
    absl::StatusOr<std::unique_ptr<ReplicaLane>> lane = connection->OpenLane();
    equal = lane.status();
    if (lane.ok()) lanes.push_back(*std::move(lane));
  }
  if (!equal.ok()) {
    equal = OfReplica(equal);
    SetState(equal);
    if (has_begun_ && absl::IsAborted(equal)) {
      absl::MutexLock lock(&mutex_);
      is_superseded_ = true;
    }
    // If the replica has refused this server, each later attempt fails too. Only a new reason is
    // reported.
    const bool is_refused = absl::IsAborted(equal) || absl::IsFailedPrecondition(equal);
    if (has_begun_ && is_refused && equal != refused_) deps_.on_change(equal);
    refused_ = equal;
    return equal;
  }
  {
    absl::MutexLock lock(&mutex_);
    if (is_over_) return state_;
    lanes_ = std::move(lanes);
    state_ = absl::OkStatus();
  }
  deps_.on_change(absl::OkStatus());
  return absl::OkStatus();
}

absl::Status Replication::CheckJournals(const MirroredFolders& folders,
                                        ReplicaConnection& connection,
                                        const std::vector<FileEntry>& theirs) const {
  for (const MirroredPath& path : folders.OfShard(config_.shard)) {
    if (path.folder != MirroredFolder::kJournal) continue;
    ASSIGN_OR_RETURN(const std::string folder, folders.Locate(config_.shard, path));
    uint64_t durable_there = 0;
    if (!has_begun_) {
      ASSIGN_OR_RETURN(
          durable_there,
          DurableAt(connection, theirs, {path.folder, journal::JournalWatermarkPath(path.path)}));
    }
    const absl::Status checked = CheckJournal(folder, durable_there);
    if (!absl::IsDataLoss(checked)) {
      RETURN_IF_ERROR(checked);
      continue;
    }
    return absl::FailedPreconditionError(absl::StrCat(
        checked.message(), ". The replica may have the missing part: move the journal ",
        config_.journal_dir,
        " away, and this server copies everything from the replica. To continue without the "
        "replica instead, start with --promote and without --journal_replica"));
  }
  return absl::OkStatus();
}

absl::Status Replication::CheckJournal(const std::string& folder, uint64_t durable_there) const {
  // After the term has begun, this process knows all segments. So it only checks that they still
  // exist.
  if (has_begun_) {
    std::vector<std::string> gone = here_.Gone(folder);
    // Only segments must exist. Operators may remove other files.
    std::erase_if(gone, [](const std::string& path) { return !journal::IsJournalSegment(path); });
    if (gone.empty()) return absl::OkStatus();
    return absl::DataLossError(absl::StrCat(gone.front(),
                                            " is gone, although this server did not remove it. "
                                            "Find the program that removes files there"));
  }
  ASSIGN_OR_RETURN(const journal::JournalEnd end,
                   journal::ReadJournal(here_, folder, [](const journal::JournalRecord&) {
                     return absl::OkStatus();
                   }));
  if (durable_there <= end.last_sequence) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat("the journal ", folder, " ends with record ", end.last_sequence,
                   ", and records up to ", durable_there,
                   " were acknowledged. The disk was set back to an older state, for example to a "
                   "snapshot, or files are missing"));
}

absl::Status Replication::Equalise(ReplicaConnection& connection) {
  if (has_begun_) RETURN_IF_ERROR(deps_.confirm());
  TermRequest request;
  request.term = config_.term;
  request.connection = deps_.random_id();
  request.previous = config_.plan.previous;
  if (has_begun_) request.previous.push_back(config_.term);
  request.has_nothing = config_.plan.has_nothing && !has_begun_;
  request.may_begin_copy = (config_.plan.may_begin_copy && !has_fetched_) || has_begun_;
  request.shard = config_.shard;
  request.num_shards = config_.num_shards;
  request.checkpoint_dir = config_.checkpoint_dir;
  request.server = config_.server;
  // The mark is written before the replica is asked for the term. If this process ends before the
  // answer comes, a later process can resume from either term.
  if (!has_begun_) {
    RETURN_IF_ERROR(WriteMark(/*has_begun=*/false, /*is_whole=*/!request.has_nothing));
  }
  ASSIGN_OR_RETURN(const TermGrant grant, connection.BeginTerm(request));
  const auto folders = std::make_shared<const MirroredFolders>(
      config_.journal_dir, grant.keeps_checkpoints ? config_.checkpoint_dir : "");
  {
    absl::MutexLock lock(&mutex_);
    folders_ = folders;
  }
  const auto tell = [this](absl::string_view doing) {
    return [this, doing = std::string(doing)](const CopyProgress& progress) {
      SetState(absl::UnavailableError(absl::StrCat(doing, ": ", BytesText(progress.done_bytes),
                                                   " of ", BytesText(progress.all_bytes))));
    };
  };
  const auto warn = [](const std::string& text) { logging::LogWarn("{}", text); };
  if (grant.verdict == TermVerdict::kFetch) {
    logging::LogInfo("this server has no journal; it copies the journal of the replica {}",
                     config_.replica);
    has_fetched_ = true;
    RETURN_IF_ERROR(FetchAll(here_, *folders, config_.shard, connection,
                             tell("this server copies the journal of the replica"), warn));
    RETURN_IF_ERROR(WriteMark(/*has_begun=*/true, /*is_whole=*/true));
    has_begun_ = true;
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const std::vector<FileEntry> theirs, connection.ListFiles());
  const std::vector<uint64_t>& previous = config_.plan.previous;
  const bool had_replica = has_begun_ || (!previous.empty() && previous.front() != 0);
  if (had_replica) {
    RETURN_IF_ERROR(CheckJournals(*folders, connection, theirs));
    RETURN_IF_ERROR(FetchLostCheckpoints(here_, *folders, config_.shard, theirs, connection,
                                         tell("this server copies checkpoints of the replica"),
                                         warn));
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<ReplicaLane> lane, connection.OpenLane());
  RETURN_IF_ERROR(SendDifferences(
      here_, *folders, config_.shard, theirs, *lane,
      tell(absl::StrCat("the replica is being brought up to date with shard ", config_.shard))));
  // The mark must name this term before the copy is declared whole. From then on, another server
  // may resume from the copy.
  if (!has_begun_) RETURN_IF_ERROR(WriteMark(/*has_begun=*/true, /*is_whole=*/true));
  has_begun_ = true;
  RETURN_IF_ERROR(lane->Send(CopyIsWholeChange{}));
  ASSIGN_OR_RETURN(const uint64_t question, lane->Ask());
  return lane->Await(question);
}

void Replication::KeepConnected() {
  watch_ = std::thread([this] { Watch(); });
}

absl::Status Replication::Look() {
  std::shared_ptr<ReplicaConnection> connection;
  uint64_t number = 0;
  {
    absl::MutexLock lock(&mutex_);
    if (state_.ok()) connection = connection_;
    number = num_connections_;
  }
  if (connection == nullptr) return Connect();
  absl::Status alive = connection->CheckTerm();
  alive.Update(CheckAnswers());
  if (!alive.ok()) Lose(number, alive);
  return state();
}

absl::Status Replication::CheckAnswers() const {
  absl::MutexLock lock(&mutex_);
  for (const auto& [pass, since] : awaited_since_) {
    const absl::Duration waited = deps_.clock->Now() - since;
    if (waited < kLongestAnswer) continue;
    return absl::UnavailableError(absl::StrCat(
        "has not answered for ", absl::FormatDuration(absl::Trunc(waited, absl::Seconds(1))),
        ", although it is connected; its disk hangs, or the answer is lost"));
  }
  return absl::OkStatus();
}

void Replication::Watch() {
  const auto is_over = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return is_over_; };
  const auto has_news = [this]()
                            ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return is_over_ || was_lost_; };
  while (true) {
    const absl::Status state = Look();  // writers get the same status
    absl::MutexLock lock(&mutex_);
    if (mutex_.AwaitWithTimeout(absl::Condition(&is_over), kTryAgain)) return;
    if (absl::IsUnavailable(state)) continue;
    mutex_.AwaitWithTimeout(absl::Condition(&has_news), kLook - kTryAgain);
    if (is_over_) return;
    was_lost_ = false;
  }
}

void Replication::Shutdown() {
  std::shared_ptr<ReplicaConnection> connection;
  {
    absl::MutexLock lock(&mutex_);
    is_over_ = true;
    state_ = absl::CancelledError("the server is stopping");
    connection = connection_;
  }
  if (connection != nullptr) connection->Cancel();
  if (watch_.joinable()) watch_.join();
}

}  // namespace lodestar::replica

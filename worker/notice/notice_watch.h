// SPDX-License-Identifier: Apache-2.0

// NoticeWatch looks at a source of notices again and again, on a thread of its own, until there is
// a notice.
#pragma once

#include <functional>
#include <memory>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/runtime/clock.h"
#include "worker/notice/notice_course.h"
#include "worker/notice/notice_source.h"

namespace lodestar::notice {

class NoticeWatch {
 public:
  struct Config {
    // Time between two looks.
    absl::Duration interval = absl::Seconds(2);
    // Time between a notice and the end of the machine.
    absl::Duration grace = absl::Minutes(2);
  };

  // `on_notice` is called at most once, on the watch's thread. `clock` must outlive the watch.
  NoticeWatch(std::unique_ptr<NoticeSource> source, const Config& config, Clock* clock,
              std::function<void(const MachineNotice&)> on_notice);
  // Blocks until a look that is running has ended.
  ~NoticeWatch();

 private:
  void Run();

  const std::unique_ptr<NoticeSource> source_;
  const Config config_;
  Clock* const clock_;
  const std::function<void(const MachineNotice&)> on_notice_;
  absl::Mutex mutex_;
  bool is_over_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace lodestar::notice

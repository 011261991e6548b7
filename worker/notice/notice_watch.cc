// SPDX-License-Identifier: Apache-2.0

#include "worker/notice/notice_watch.h"

#include <optional>
#include <utility>
#include <variant>

#include "common/logging/logging.h"

namespace lodestar::notice {

NoticeWatch::NoticeWatch(std::unique_ptr<NoticeSource> source, const Config& config, Clock* clock,
                         std::function<void(const MachineNotice&)> on_notice)
    : source_(std::move(source)),
      config_(config),
      clock_(clock),
      on_notice_(std::move(on_notice)),
      thread_([this] { Run(); }) {}

NoticeWatch::~NoticeWatch() {
  {
    absl::MutexLock lock(&mutex_);
    is_over_ = true;
  }
  thread_.join();
}

void NoticeWatch::Run() {
  NoticeCourse course(config_.grace);
  while (true) {
    const absl::Time begun = clock_->Now();
    const absl::StatusOr<std::optional<std::string>> found = source_->Look();
    const std::optional<NoticeCourse::Event> event = course.OnLook(begun, clock_->Now(), found);
    if (event.has_value()) {
      if (const auto* notice = std::get_if<MachineNotice>(&*event)) return on_notice_(*notice);
      logging::LogWarn("{}", std::get<NoticeCourse::Warning>(*event).text);
    }
    absl::MutexLock lock(&mutex_);
    if (clock_->Await(mutex_, absl::Condition(&is_over_), config_.interval)) return;
  }
}

}  // namespace lodestar::notice

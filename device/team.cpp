#include "device/team.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <thread>

#include "core/background.h"
#include "core/log.h"
#include "core/wait.h"
#include "execute/signature.h"

namespace tutti {
// Slots as in NCCL's order of magnitude, not measured: 224 KiB a slot, 14 MiB a pair of ranks, and
// 7 MiB for its messages. With more ranks than four, smaller ones, as the memory on a GPU that they
// share grows with their square, and fewer channels for messages, as every peer takes thread blocks
// for each of them.
device::SegmentShape device_segment(int ranks) {
  const std::uint32_t share = ranks <= 4 ? 1 : ranks <= 8 ? 2 : ranks <= 16 ? 4 : 8;
  device::SegmentShape shape;
  shape.ranks = static_cast<std::uint32_t>(ranks);
  shape.channels = 2 * kOwnChannels;
  shape.signal_channels =
      160 - shape.channels;  // a block for every multiprocessor, and lanes of two
  shape.message_channels = ranks <= 2 ? 8 : ranks <= 4 ? 4 : ranks <= 8 ? 2 : 1;
  shape.slots = 4;
  shape.ll_bytes = (32U << 10) / share;
  shape.ll128_bytes = (64U << 10) / share;
  shape.simple_bytes = (128U << 10) / share;
  return shape;
}

namespace {

/// The stream that waits for all others of the GPU, and they for it: CUDA's default one.
bool is_default(device::Stream stream) {
  return stream == nullptr || stream == reinterpret_cast<device::Stream>(1);  // cudaStreamLegacy
}

/// Throws for more ranks of a process than a launch has room for.
void check_count(std::span<const int> ordinals) {
  for (const int ordinal : ordinals) {
    const auto here = std::ranges::count(ordinals, ordinal);
    if (ordinal < 0 || here <= std::ptrdiff_t{device::kMostRanks}) continue;
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{} ranks of a process share GPU {}; at most {} can", here, ordinal,
                            device::kMostRanks));
  }
}

}  // namespace

/// All teams of this process.
struct DeviceTeams {
  std::mutex mutex;
  std::map<std::uint64_t, std::weak_ptr<DeviceTeam>> by_key;
  std::vector<std::shared_ptr<DeviceTeam>> for_ever;  // their memory must not be freed

  static DeviceTeams& all() {
    static auto* const instance = new DeviceTeams;  // communicators may end with the process
    return *instance;
  }
  /// Of the segment on the host of the first rank there.
  static std::uint64_t key(const Members& group) { return group.key(group.ranks_here().front()); }
  std::shared_ptr<DeviceTeam> find(const Members& group) {
    const auto found = by_key.find(key(group));
    return found != by_key.end() ? found->second.lock() : nullptr;
  }
  std::shared_ptr<DeviceTeam> join(RankGroup& group, const WaitPolicy& policy,
                                   const std::function<std::shared_ptr<DeviceTeam>()>& make) {
    // Held while it is made: the other ranks have to wait for it anyway.
    const std::lock_guard lock(mutex);
    auto team = find(group);
    if (!team) by_key[key(group)] = team = make();
    team->join(group, policy);
    return team;
  }
  void leave(const std::shared_ptr<DeviceTeam>& team, RankGroup& group) {
    {
      const std::lock_guard lock(mutex);
      if (!team->leave(group)) return;
      by_key.erase(key(group));
    }
    team->end(group);
    if (!team->peers_.are_using_ours()) return;
    try {
      run_in_background("tutti-goodbye", [this, team](int) { keep(team); });
    } catch (const Error&) {  // there are no more threads
      const std::lock_guard lock(mutex);
      for_ever.push_back(team);
    }
  }
  /// Until nobody needs it any more; if this process exits, two seconds more.
  void keep(const std::shared_ptr<DeviceTeam>& team) {
    const auto is_free = [&] { return !team->peers_.are_using_ours(); };
    if (wait_until(Deadline::max(), is_free, OnStop::ends)) return;
    wait_until(deadline_after(std::chrono::milliseconds(1800)), is_free, OnStop::goes_on);
    // Frees nothing while the process, and CUDA with it, is being taken down.
    const std::lock_guard lock(mutex);
    for_ever.push_back(team);
  }
};

DeviceTeam::DeviceTeam(RankGroup& group, std::vector<int> ordinals,
                       const std::function<std::shared_ptr<device::Device>(int ordinal)>& open)
    : ordinals_(std::move(ordinals)),
      shape_(device_segment(group.size())),
      executors_(make_executors(group, open)),
      windows_(!group.one_host() || (group.one_process() && executors_.gpus().size() == 1)
                   ? nullptr
                   : std::make_unique<DeviceWindows>(group, executors_)),
      peers_(group, shape_, executors_, windows_ ? windows_->board() : nullptr) {
  launched_.resize(executors_.size(), std::vector<Launched>(kRemembered));
  launches_.resize(executors_.size());
  std::function<void()> wait = [] { std::this_thread::sleep_for(std::chrono::milliseconds(20)); };
  if (windows_) wait = [board = windows_->board()] { board->wait_for_doorbell(); };
  watch_ = DeviceWatch::start([this](RankGroup& g) { look(g); }, std::move(wait));
}

DeviceExecutors DeviceTeam::make_executors(
    const Members& group, const std::function<std::shared_ptr<device::Device>(int ordinal)>& open) {
  check_count(ordinals_);
  DeviceExecutors executors(group.size());
  for (int r = 0; r < group.size(); ++r) {
    if (!group.same_process(r)) continue;
    auto gpu = open(ordinal(r));
    const auto sharing = static_cast<int>(std::ranges::count(ordinals_, ordinal(r)));
    auto executor = std::make_unique<device::Executor>(*gpu, r, shape_, sharing);
    executors.add(std::move(executor), std::move(gpu));
  }
  return executors;
}

void DeviceTeam::join(RankGroup& group, const WaitPolicy& policy) {
  peers_.join(group);
  ++joined_;
  const device::Executor::Limits limits{policy.timeout, policy.report_after};
  executors_.of(group.rank()).set_limits(limits);
  if (peers_.host() != nullptr) peers_.host()->set_limits(group.rank(), limits);
  watch_->add(group);
}

bool DeviceTeam::leave(RankGroup& group) {
  const bool last = --joined_ == 0;
  // The last one is looked at until its kernels have ended.
  if (!last) watch_->remove(group);
  return last;
}

void DeviceTeam::end(RankGroup& group) {
  for (const auto& gpu : executors_.gpus()) gpu->drain(this);
  watch_->remove(group);
  watch_->stop();
  if (windows_) windows_->leave();
  if (peers_.host() != nullptr && group.liveness().failed()) peers_.host()->set_failed();
  peers_.leave();
}

void DeviceTeam::look(RankGroup& group) {
  note_failure(group);
  group.liveness().check_peers("watching what runs on its GPU");
  if (group.liveness().failed()) return abort();
  if (const auto late = this->late()) {
    group.diagnostics().refresh(late->rank);
    log().warn("{}; that rank's newest collective on GPU memory is {}; still waiting", late->text,
               newest_text(group.control(late->rank), CallsOn::gpu));
  }
  if (!windows_) return;
  try {
    windows_->look();
  } catch (const Error& e) {
    group.liveness().fail({e.code(), e.rank(), e.what()});
  }
}

std::vector<DeviceTeam::Parts> DeviceTeam::by_gpu(std::vector<Part>& parts) const {
  const auto gpu = [&](const Part& part) { return executors_.gpu_index(part.rank); };
  std::ranges::stable_sort(parts, {}, gpu);
  std::vector<Parts> all;
  for (auto first = parts.begin(); first != parts.end();) {
    const auto last = std::find_if(first, parts.end(),
                                   [&](const Part& part) { return gpu(part) != gpu(*first); });
    all.emplace_back(first, last);
    first = last;
  }
  return all;
}

bool DeviceTeam::are_all(Parts parts) const {
  return parts.size() == executors_.ranks_on(executors_.of(parts.front().rank).device());
}

void DeviceTeam::check_default_stream(Parts parts) const {
  if (are_all(parts)) return;
  for (const Part& part : parts) {
    if (std::ranges::none_of(part.streams, is_default)) continue;
    throw Error(
        ErrorCode::invalid_usage,
        fmt::format("rank {} shares GPU {} with other ranks of its process and uses CUDA's "
                    "default stream, which waits for theirs: use a stream of its own (made with "
                    "cudaStreamNonBlocking), or call all ranks in one group()",
                    part.rank, ordinal(part.rank)));
  }
}

void DeviceTeam::check_stream(Parts parts) {
  const std::lock_guard lock(mutex_);
  const bool all = are_all(parts);
  std::optional<device::StreamPlace> place;
  if (!all) {
    place = executors_.of(parts.front().rank).device().place(parts.front().streams.front());
  }
  const auto is_here = [&](int rank) {
    return std::ranges::find(parts, rank, &Part::rank) != parts.end();
  };
  for (const Part& part : parts) {
    const std::size_t mine = executors_.index(part.rank);
    const std::uint64_t number = ++launches_[mine];
    launched_[mine][number % kRemembered] = {number, place};
    for (const auto& executor : executors_) {
      const int rank = executor->rank();
      const Launched& other = launched_[executors_.index(rank)][number % kRemembered];
      if (all || ordinal(rank) != ordinal(part.rank)) continue;
      if (other.number != number || other.place != place || is_here(rank)) continue;
      throw Error(
          ErrorCode::invalid_usage,
          fmt::format("ranks {} and {} run the same operation on the same stream of GPU {}, "
                      "one after the other, but they wait for each other: use a stream for "
                      "each, or call both in one group()",
                      rank, part.rank, ordinal(rank)));
    }
  }
}

void DeviceTeam::launch(std::vector<Part> parts) {
  const Part& first = parts.front();
  for (const Part& part : parts) {
    if (part.binding.type == first.binding.type) continue;
    throw Error(ErrorCode::mismatch,
                fmt::format("calls do not match: rank {} has {}, rank {} has {}", first.rank,
                            name(first.binding.type), part.rank, name(part.binding.type)),
                part.rank);
  }
  const std::vector<Parts> all = by_gpu(parts);
  for (const Parts here : all) {
    check_default_stream(here);
    check_stream(here);
  }
  launch_each(all, &DeviceTeam::prepare, first.binding.type);
}

void DeviceTeam::launch_each(const std::vector<Parts>& all,
                             Launches (DeviceTeam::*preparation)(Parts), DataType type) {
  std::vector<Launches> launches;
  for (const Parts here : all) {
    for (const Part& part : here) wait_for_newest(part);
    launches.push_back((this->*preparation)(here));
  }
  for (std::size_t g = 0; g < all.size(); ++g) enqueue(all[g], launches[g], type);
}

std::vector<DeviceTeam::Series> DeviceTeam::series_of(const Part& part) {
  if (part.messages.empty()) return {{part.rank}};
  std::set<Series> all;
  for (const device::DeviceMessage& m : part.messages) {
    all.insert({part.rank, static_cast<int>(m.peer), m.sends});
  }
  return {all.begin(), all.end()};
}

void DeviceTeam::wait_for_newest(const Part& part) {
  device::Device& gpu = executors_.of(part.rank).device();
  const device::Stream stream = part.streams.front();
  const device::StreamPlace place = gpu.place(stream);
  std::set<device::Event> events;
  {
    const std::lock_guard lock(mutex_);
    for (const Series& series : series_of(part)) {
      const device::Mark& newest = newest_[series][place.capture != 0 ? 1 : 0];
      if (newest.place.capture == place.capture && newest.place.stream != place.stream) {
        events.insert(newest.event);
      }
    }
  }
  for (const device::Event& event : events) gpu.order(event, stream);
}

void DeviceTeam::link(const Part& part) {
  if (!peers_.spans_hosts()) return;
  const std::lock_guard lock(mutex_);
  const std::pair key{part.rank, part.binding.plan};
  if (linked_.contains(key)) return;
  for (const Operand& o : key.second->operands) {
    if (o.is_link()) peers_.link(part.rank, o.rank);
  }
  linked_.insert(key);
}

DeviceTeam::Launches DeviceTeam::prepare(Parts parts) {
  Launches launches;
  for (const Part& part : parts) {
    link(part);
    launches.push_back(collective_executor(part.rank).prepare(part.binding, part.streams.front()));
  }
  return launches;
}

void DeviceTeam::launch_messages(std::vector<Part> parts) {
  const std::vector<Parts> all = by_gpu(parts);
  for (const Parts here : all) check_default_stream(here);
  launch_each(all, &DeviceTeam::prepare_messages, DataType::uint8);
}

DeviceTeam::Launches DeviceTeam::prepare_messages(Parts parts) {
  Launches launches;
  for (const Part& part : parts) {
    // Two parts, side by side, where some peers are reached through the host.
    const auto through_host = [&](const device::DeviceMessage& m) {
      return peers_.messages_through_host(part.rank, static_cast<int>(m.peer));
    };
    std::vector<device::DeviceMessage> direct = part.messages;
    const auto others = std::ranges::stable_partition(direct, std::not_fn(through_host));
    const std::vector<device::DeviceMessage> forwarded(others.begin(), others.end());
    direct.erase(others.begin(), others.end());
    for (const auto& m : forwarded) peers_.link(part.rank, static_cast<int>(m.peer));
    const std::uint32_t shares = direct.empty() || forwarded.empty() ? 1 : 2;
    const device::Stream stream = part.streams.front();
    if (!direct.empty()) {
      launches.push_back(executors_.of(part.rank).prepare(direct, stream, shares));
    }
    if (!forwarded.empty()) {
      launches.push_back(peers_.host()->executor(part.rank).prepare(forwarded, stream, shares));
    }
  }
  return launches;
}

void DeviceTeam::enqueue(Parts parts, std::span<const device::RankLaunch> launches, DataType type) {
  device::Device& gpu = executors_.of(parts.front().rank).device();
  // One stream runs the kernel; the others wait for it, and it for them.
  const device::Stream stream = parts.front().streams.front();
  std::vector<device::Stream> others;
  for (const Part& part : parts) {
    for (const device::Stream s : part.streams) {
      if (s != stream && std::ranges::find(others, s) == others.end()) others.push_back(s);
    }
  }
  const auto copy = [&](std::vector<Copy> Part::*copies) {
    for (const Part& part : parts) {
      for (const Copy& c : part.*copies) gpu.copy(c.to, c.from, c.bytes, part.streams.front());
    }
  };
  copy(&Part::before);
  for (const device::Stream s : others) gpu.order(s, stream);
  device::enqueue(gpu, launches, shape_, type, stream);
  for (const device::Stream s : others) gpu.order(stream, s);
  copy(&Part::after);
  std::map<device::Stream, device::Mark> noted;
  others.push_back(stream);
  for (const device::Stream s : others) noted[s] = gpu.note(s, this);
  {
    const std::lock_guard lock(mutex_);
    for (const Part& part : parts) {
      const device::Mark& newest = noted[part.streams.front()];
      for (const Series& series : series_of(part)) {
        newest_[series][newest.place.capture != 0 ? 1 : 0] = newest;
      }
    }
  }
  if (peers_.host() != nullptr) peers_.host()->wake();
}

std::vector<device::Event> DeviceTeam::newest_events(int rank) {
  std::vector<device::Event> events;
  const std::lock_guard lock(mutex_);
  for (const auto& [series, newest] : newest_) {
    if (series.rank == rank || joined_ == 1) events.push_back(newest[0].event);
  }
  return events;
}

bool DeviceTeam::is_running(int rank) {
  device::Device& gpu = executors_.of(rank).device();
  try {
    return !std::ranges::all_of(newest_events(rank),
                                [&](const device::Event& event) { return gpu.is_over(event); });
  } catch (const Error&) {  // another kernel has failed, and the GPU is of no use any more
    return true;
  }
}

void DeviceTeam::wait(int rank) {
  device::Device& gpu = executors_.of(rank).device();
  try {
    for (const device::Event& event : newest_events(rank)) gpu.synchronize(event);
  } catch (const Error&) {  // then nothing runs
  }
}

void DeviceTeam::abort() {
  for (const auto& executor : executors_) executor->abort();
  if (peers_.host() != nullptr) peers_.host()->abort();
}

void DeviceTeam::note_failure(RankGroup& group) {
  const auto f = failure();
  if (!f) return;
  // Kernels know no names of calls.
  if (f->code() == ErrorCode::mismatch && f->rank() >= 0 && !group.liveness().failed()) {
    group.diagnostics().refresh(f->rank());
  }
  compare_with_peers(group, CallsOn::gpu);
  group.liveness().fail({f->code(), f->rank(), f->what()});
  abort();
}

std::optional<Error> DeviceTeam::failure() const {
  std::vector<Error> failures;
  for (const auto& executor : executors_) {
    if (auto failure = executor->failure()) failures.push_back(std::move(*failure));
  }
  if (peers_.host() != nullptr) {
    for (Error& failure : peers_.host()->failures()) failures.push_back(std::move(failure));
  }
  std::optional<Error> first;
  for (Error& failure : failures) {
    // A rank that timed out may only suffer from what another failure explains.
    if (!first || first->code() == ErrorCode::timed_out) first = std::move(failure);
  }
  return first;
}

std::optional<device::LateRank> DeviceTeam::late() {
  for (const auto& executor : executors_) {
    if (auto late = executor->late()) return late;
  }
  return peers_.host() != nullptr ? peers_.host()->late() : std::nullopt;
}

std::shared_ptr<DeviceTeam> join_device_team(
    RankGroup& group, const WaitPolicy& policy,
    const std::function<std::shared_ptr<DeviceTeam>()>& make) {
  return DeviceTeams::all().join(group, policy, make);
}

void leave_device_team(const std::shared_ptr<DeviceTeam>& team, RankGroup& group) {
  DeviceTeams::all().leave(team, group);
}

std::shared_ptr<DeviceTeam> find_device_team(const Members& group) {
  DeviceTeams& teams = DeviceTeams::all();
  const std::lock_guard lock(teams.mutex);
  return teams.find(group);
}

}  // namespace tutti

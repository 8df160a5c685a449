#include "tools/top/watcher.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>

#include "core/proc.h"
#include "execute/signature.h"
#include "tools/top/process.h"
#include "transport/sockets/socket.h"

namespace tutti::top {

using Clock = std::chrono::steady_clock;

namespace {

// A rank that waits looks around every 50 ms, and up to four times less often in a crowd.
constexpr double kFresh = 0.5;
// New ranks and communicators are looked for so often.
constexpr auto kFindEvery = std::chrono::seconds(2);
// What is passed on of a text that a rank has left.
constexpr std::size_t kMostText = 1024;

double seconds_since(std::int64_t when, Clock::time_point now) {
  return std::max(0.0, 1e-9 * static_cast<double>(now.time_since_epoch().count() - when));
}

/// Bytes that may stand in a terminal and in JSON.
std::string clean(std::string text) {
  text.resize(std::min(text.size(), kMostText));
  for (char& c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < ' ' || byte >= 0x7f) c = c == '\n' ? ' ' : '?';
  }
  return text;
}

std::optional<Signature> signature_at(const ControlBlock& block, std::uint64_t number, CallsOn on) {
  // It only reads.
  auto s = read_signature(const_cast<ControlBlock&>(block), number, on);
  if (s && (!is_valid(s->collective) || size_of(s->type) == 0)) s.reset();
  return s;
}

/// The bytes of the calls after number `before`. A call without a record any more counts as the
/// others do.
double bytes_since(const ControlBlock& block, std::uint64_t before, std::uint64_t newest,
                   CallsOn on) {
  double bytes = 0;
  std::uint64_t known = 0;
  const std::uint64_t first = std::max(before, newest - std::min<std::uint64_t>(newest, kRecords));
  for (std::uint64_t n = first + 1; n <= newest; ++n) {
    if (const auto s = signature_at(block, n, on)) {
      bytes += static_cast<double>(s->count) * static_cast<double>(size_of(s->type));
      ++known;
    }
  }
  return known == 0 ? 0 : bytes / static_cast<double>(known) * static_cast<double>(newest - before);
}

std::string newest_of(const ControlBlock& block, std::uint64_t number, CallsOn on) {
  const auto s = signature_at(block, number, on);
  return s ? s->text() : fmt::format("call #{}", number);
}

bool is_plausible(const Nameplate& plate, bool is_segment) {
  return plate.version == Nameplate::kVersion &&
         plate.block_bytes == (is_segment ? sizeof(ControlBlock) : 0) && plate.size >= 1 &&
         plate.rank >= 0 && plate.rank < plate.size;
}

}  // namespace

/// The control blocks of a host's ranks, or a nameplate alone, mapped to be read.
struct Watcher::Mapping {
  Mapping(void* data, std::size_t size) : data_(data), size_(size) {}
  ~Mapping() { munmap(data_, size_); }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  bool is_meeting() const { return size_ < sizeof(ControlBlock); }
  std::size_t places() const { return is_meeting() ? 1 : size_ / sizeof(ControlBlock); }
  const Nameplate& plate(std::size_t place) const {
    return is_meeting() ? *static_cast<const Nameplate*>(data_) : block(place).nameplate;
  }
  const ControlBlock& block(std::size_t place) const {
    return static_cast<const ControlBlock*>(data_)[place];
  }

  /// Null: that is nothing which can be mapped.
  static std::shared_ptr<const Mapping> of(int fd, std::size_t size) {
    struct stat status {};
    if (fstat(fd, &status) != 0 || status.st_size < static_cast<off_t>(size)) return nullptr;
    // Its owner must not be able to make our loads fault.
    const int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) return nullptr;
    void* const data = mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, 0);
    return data == MAP_FAILED ? nullptr : std::make_shared<Mapping>(data, size);
  }

 private:
  void* const data_;
  const std::size_t size_;
};

void Watcher::add_segment(int pid, int folder, const char* name) {
  std::array<char, 64> target{};
  const ssize_t length = readlinkat(folder, name, target.data(), target.size() - 1);
  if (length <= 0 || target[0] != '/' || target[1] != 'm') return;
  const std::string_view link(target.data(), static_cast<std::size_t>(length));
  constexpr std::string_view kMemfd = "/memfd:";
  if (!link.starts_with(kMemfd)) return;
  const std::string_view label = link.substr(kMemfd.size(), link.rfind(' ') - kMemfd.size());
  const bool is_segment = label == Nameplate::kSegment;
  if (!is_segment && label != Nameplate::kMeeting) return;

  struct stat status {};
  if (fstatat(folder, name, &status, 0) != 0) return;
  const auto memory = mapping_of({status.st_dev, status.st_ino, 0}, folder, name, is_segment);
  if (memory == nullptr) return;
  const int own_number = own_number_of(pid);
  for (std::size_t place = 0; place < memory->places(); ++place) {
    const Nameplate& plate = memory->plate(place);
    if (plate.magic.load(std::memory_order_acquire) != Nameplate::kMagic) continue;
    // Of this process: others of its host show themselves there, too, and a child by fork() has the
    // descriptor, and is not the rank.
    if (plate.pid != pid && plate.pid != own_number) continue;
    if (!is_plausible(plate, is_segment)) {
      notes_.push_back(fmt::format(
          "process {} has another version of Tutti: look at it with the tutti top of that one",
          pid));
      return;
    }
    const Key key{status.st_dev, status.st_ino, place};
    Segment& segment = segments_[key];
    segment.memory = memory;
    segment.place = place;
    segment.pid = pid;
    seen_.insert(key);
  }
}

std::shared_ptr<const Watcher::Mapping> Watcher::mapping_of(const Key& first, int folder,
                                                            const char* name, bool is_segment) {
  // Any place of the memfd that is known has its mapping.
  const auto known = segments_.lower_bound(first);
  if (known != segments_.end() && std::get<0>(known->first) == std::get<0>(first) &&
      std::get<1>(known->first) == std::get<1>(first)) {
    return known->second.memory;
  }
  const FileDescriptor fd(openat(folder, name, O_RDONLY | O_CLOEXEC));
  if (!fd) return nullptr;
  const auto one = Mapping::of(fd.fd(), is_segment ? sizeof(ControlBlock) : sizeof(Nameplate));
  if (one == nullptr || !is_segment) return one;
  // The first rank says how many there are.
  const Nameplate& plate = one->plate(0);
  if (plate.magic.load(std::memory_order_acquire) != Nameplate::kMagic) return nullptr;
  const auto here = static_cast<std::size_t>(std::clamp(plate.here, 1, 1 << 20));
  if (plate.block_bytes != sizeof(ControlBlock) || here == 1) return one;
  return Mapping::of(fd.fd(), here * sizeof(ControlBlock));
}

/// Those of processes that have ended.
void Watcher::drop_segments() {
  std::map<int, bool> there;
  std::erase_if(segments_, [&](const auto& s) {
    const int pid = s.second.pid;
    const auto [known, is_new] = there.try_emplace(pid, false);
    if (is_new) known->second = access(fmt::format("/proc/{}", pid).c_str(), F_OK) == 0;
    return !known->second;
  });
}

void Watcher::find_segments() {
  // The processes of a host have many descriptors.
  if (found_ != Clock::time_point{} && Clock::now() - found_ < kFindEvery) return drop_segments();
  found_ = Clock::now();
  seen_.clear();
  notes_.clear();
  for (const int pid : process_ids()) {
    const std::string path = fmt::format("/proc/{}/fd", pid);
    const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir(path.c_str()), closedir);
    if (folder == nullptr) continue;  // another user's, or gone
    while (const dirent* const entry = readdir(folder.get())) {
      if (entry->d_name[0] != '.') add_segment(pid, dirfd(folder.get()), entry->d_name);
    }
  }
  std::erase_if(segments_, [&](const auto& s) { return !seen_.contains(s.first); });
}

Member Watcher::member_of(Segment& segment, bool stands_still) {
  const ControlBlock& block = segment.memory->block(segment.place);
  const Nameplate& plate = block.nameplate;
  const auto now = Clock::now();
  Member m;
  m.communicator = plate.communicator;
  m.identity = plate.identity;
  m.rank = plate.rank;
  m.size = plate.size;
  m.here = plate.here;
  m.job_rank = plate.job_rank;
  m.pid = segment.pid;
  m.age = seconds_since(plate.made_at, now);
  m.left = (block.state.load(std::memory_order_acquire) & kLeft) != 0;

  m.number = newest_sequence(block.records[0]);
  const std::uint64_t on_gpus = newest_sequence(block.records[1]);
  m.calls = m.number + on_gpus;
  if (m.number > 0) {
    m.newest = clean(newest_of(block, m.number, CallsOn::host));
  } else if (on_gpus > 0) {
    m.newest = clean(newest_of(block, on_gpus, CallsOn::gpu) + " on GPU memory");
  }
  m.waited = 1e-9 * static_cast<double>(block.callers.ns.load(std::memory_order_relaxed));
  m.futures = static_cast<int>(block.callers.futures.load(std::memory_order_relaxed));
  double waiting_now = 0;
  for (const ShownWait& w : block.shown_waits) {
    const std::int64_t since = w.since.load(std::memory_order_acquire);
    const std::int64_t looked = w.looked_at.load(std::memory_order_acquire);
    const std::uint32_t peer = w.peer.load(std::memory_order_relaxed);
    const auto call = w.call.read();
    if (since == 0 || peer == 0 || peer > static_cast<std::uint32_t>(m.size) || !call) continue;
    if (call->number != static_cast<std::uint64_t>(since)) continue;  // it is being rewritten
    const bool fresh = seconds_since(looked, now) < kFresh;
    if (!fresh && !stands_still) continue;
    m.waits.push_back({static_cast<int>(peer) - 1, seconds_since(since, now), clean(call->text),
                       fresh, w.started.load(std::memory_order_relaxed) != 0});
    if (fresh && !m.waits.back().started)
      waiting_now = std::max(waiting_now, m.waits.back().seconds);
  }
  m.waited += waiting_now;

  if (const auto refused = block.refused.read(); refused && refused->number > m.number) {
    m.refused = clean(refused->text);
  }
  if (const auto error = block.error.read()) {
    m.error = clean(error->text);
    m.error_age = seconds_since(static_cast<std::int64_t>(error->number), now);
  }
  if (const auto failure = block.failure.read()) m.failure = clean(failure->text);

  if (segment.looked != Clock::time_point{}) {
    const double interval = std::chrono::duration<double>(now - segment.looked).count();
    const double bytes = bytes_since(block, segment.host_calls, m.number, CallsOn::host) +
                         bytes_since(block, segment.gpu_calls, on_gpus, CallsOn::gpu);
    m.calls_a_second =
        static_cast<double>(m.calls - segment.host_calls - segment.gpu_calls) / interval;
    m.bytes_a_second = bytes / interval;
    m.waiting_share = std::clamp((m.waited - segment.waited) / interval, 0.0, 1.0);
    // A wait for a started call is counted when it ends.
    if (m.futures > 0 && m.waited == segment.waited) m.waiting_share = 1;
  }
  segment.looked = now;
  segment.host_calls = m.number;
  segment.gpu_calls = on_gpus;
  segment.waited = m.waited;
  return m;
}

void Watcher::add_processes(View& view) {
  std::map<int, Cpu> cpu;
  for (const auto& [key, segment] : segments_) {
    if (segment.memory->is_meeting() || cpu.contains(segment.pid)) continue;
    const auto doing = doing_of(segment.pid);
    if (!doing) continue;
    const auto now = Clock::now();
    Process p{segment.pid, view.host, clean(command_of(segment.pid)), doing->state,
              clean(doing->sleeps_in)};
    if (const auto before = cpu_.find(p.pid); before != cpu_.end()) {
      p.cores = (doing->cpu_seconds - before->second.seconds) /
                std::chrono::duration<double>(now - before->second.at).count();
    }
    cpu[p.pid] = {doing->cpu_seconds, now};
    view.processes.push_back(std::move(p));
  }
  cpu_ = std::move(cpu);
}

void Watcher::add_starts(View& view) {
  const auto meets = [](const auto& s) { return s.second.memory->is_meeting(); };
  if (std::ranges::none_of(segments_, meets)) return;
  std::map<int, Start> starts;  // by process
  // A rank's shell and its helpers have its variables, and are not the rank.
  std::set<std::pair<std::uint64_t, int>> ranks;
  for (const int pid : process_ids()) {
    const auto launched = launched_as(pid);
    if (!launched) continue;
    if (view.process(pid) != nullptr) {
      ranks.emplace(launched->job, launched->rank);
    } else {
      starts[pid] = {pid, launched->rank, launched->size, launched->job};
    }
  }
  for (const auto& [key, segment] : segments_) {
    if (!segment.memory->is_meeting()) continue;
    const Nameplate& plate = segment.memory->plate(segment.place);
    Start& start = starts[segment.pid];
    start.pid = segment.pid;
    start.rank = plate.rank;
    start.size = plate.size;
    start.place = plate.communicator;
    start.seconds = seconds_since(plate.made_at, Clock::now());
    ranks.emplace(start.job, start.rank);
  }
  for (const auto& [pid, start] : starts) {
    if (start.place != 0 || !ranks.contains({start.job, start.rank})) view.starts.push_back(start);
  }
}

void Watcher::keep_job(View& view) const {
  if (job_ == 0) return;
  std::set<int> pids;
  for (const Member& m : view.members) pids.insert(m.pid);
  for (const Start& s : view.starts) pids.insert(s.pid);
  std::erase_if(pids, [&](int pid) { return !descends_from(pid, job_); });
  // With all ranks that these have to do with.
  std::set<std::uint64_t> communicators, identities;
  for (std::size_t before = 1, after = 0; before != after;) {
    before = communicators.size() + identities.size();
    for (const Member& m : view.members) {
      if (!pids.contains(m.pid) && !communicators.contains(m.communicator) &&
          !identities.contains(m.identity)) {
        continue;
      }
      communicators.insert(m.communicator);
      identities.insert(m.identity);
    }
    after = communicators.size() + identities.size();
  }
  std::erase_if(view.members,
                [&](const Member& m) { return !communicators.contains(m.communicator); });
  std::erase_if(view.processes, [&](const Process& p) {
    return std::ranges::find(view.members, p.pid, &Member::pid) == view.members.end();
  });
  std::erase_if(view.starts, [&](const Start& s) { return !pids.contains(s.pid); });
}

View Watcher::look() {
  View view;
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  view.host = name.data();
  find_segments();
  view.notes = notes_;
  add_processes(view);
  for (auto& [key, segment] : segments_) {
    if (segment.memory->is_meeting()) continue;
    const Process* const process = view.process(segment.pid);
    const bool stands_still = process != nullptr && std::strchr("tTDZ", process->state) != nullptr;
    Member m = member_of(segment, stands_still);
    if (!m.left) view.members.push_back(std::move(m));
  }
  for (Process& p : view.processes) {
    std::set<std::uint64_t> ranks;
    for (const Member& m : view.members) {
      if (m.pid == p.pid) ranks.insert(m.identity);
    }
    p.ranks = static_cast<int>(ranks.size());
  }
  add_starts(view);
  keep_job(view);
  return view;
}

}  // namespace tutti::top

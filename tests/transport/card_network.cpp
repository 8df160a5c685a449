#include "tests/transport/card_network.h"

#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "core/error.h"

namespace tutti::test {
namespace {

[[noreturn]] void fault(const char* what) {
  std::fprintf(stderr, "a network card %s\n", what);
  std::abort();
}

// --- Registered memory ---------------------------------------------------------------------------

struct Known {
  std::byte* begin = nullptr;  // as it is addressed
  std::size_t bytes = 0;
  std::byte* alias = nullptr;  // where the card finds it
  bool is_of_gpu = false;
  ino_t file = 0;  // of its dma-buf
};

struct Registry {
  std::mutex mutex;
  std::uint32_t last_key = 0;
  std::map<std::uint32_t, Known> known;
  std::map<ino_t, CardWrites> writes;
  CardSettings settings;
  CardCounts counts;

  /// With the mutex.
  const Known& find(std::uint32_t key, const std::byte* at, std::size_t bytes) const {
    const auto found = known.find(key);
    if (found == known.end()) fault("uses memory that is not registered");
    const Known& k = found->second;
    if (at < k.begin || bytes > k.bytes || at > k.begin + (k.bytes - bytes)) {
      fault("leaves the memory that is registered");
    }
    return k;
  }
  static Registry& all() {
    static auto* const instance = new Registry;
    return *instance;
  }
};

class Region final : public MemoryRegion {
 public:
  explicit Region(Known known, std::size_t mapped = 0) : known_(known), mapped_(mapped) {
    Registry& registry = Registry::all();
    const std::lock_guard lock(registry.mutex);
    key_ = ++registry.last_key;
    registry.known[key_] = known;
  }
  ~Region() override {
    Registry& registry = Registry::all();
    {
      const std::lock_guard lock(registry.mutex);
      registry.known.erase(key_);
    }
    if (mapped_ > 0) munmap(known_.alias, mapped_);
  }
  std::uint32_t remote_key() const override { return key_; }

 private:
  Known known_;
  std::size_t mapped_;
  std::uint32_t key_ = 0;
};

std::shared_ptr<MemoryRegion> of_host(std::byte* memory, std::size_t bytes) {
  return std::make_shared<Region>(Known{memory, bytes, memory, false, 0});
}

// --- Endpoints -----------------------------------------------------------------------------------

struct Packet {
  MessageHeader header;
  std::uint32_t notice = 0;
  std::vector<std::byte> bytes;  // a control message, or a short payload
  // A long one:
  const std::byte* from = nullptr;
  std::uint32_t local_key = 0;
  RemotePlace to;
  std::shared_ptr<void> keeps;
  std::uint64_t number = 0;  // of a put
};

struct Mailbox {
  std::mutex mutex;
  std::deque<Packet> packets;
  bool ended = false;  // nothing more comes
  bool gone = false;   // its owner has closed: nothing is written there any more
};

struct Mailboxes {
  std::mutex mutex;
  std::uint64_t last = 0;
  std::map<std::uint64_t, std::weak_ptr<Mailbox>> by_number;
  static Mailboxes& all() {
    static auto* const instance = new Mailboxes;
    return *instance;
  }
};

class CardEndpoint final : public Endpoint {
 public:
  CardEndpoint(Sink& sink, unsigned seed) : Endpoint(sink), random_(seed) {
    Mailboxes& all = Mailboxes::all();
    const std::lock_guard lock(all.mutex);
    number_ = ++all.last;
    all.by_number[number_] = mine_;
  }
  ~CardEndpoint() override { close(false); }

  const Abilities& abilities() const override { return kAbilities; }
  std::string carrier() const override { return "cards"; }
  std::vector<std::byte> address() override {
    const auto bytes = std::as_bytes(std::span(&number_, 1));
    return {bytes.begin(), bytes.end()};
  }
  void connect(std::span<const std::byte> address) override {
    std::uint64_t peer = 0;
    std::memcpy(&peer, address.data(), std::min(sizeof peer, address.size()));
    Mailboxes& all = Mailboxes::all();
    const std::lock_guard lock(all.mutex);
    theirs_ = all.by_number[peer].lock();
    if (!theirs_) fail("it is gone");
  }

  std::shared_ptr<MemoryRegion> register_ring(std::byte* memory, std::size_t bytes) override {
    return of_host(memory, bytes);
  }
  std::shared_ptr<MemoryRegion> expose(std::uint64_t, std::byte* memory,
                                       std::size_t bytes) override {
    return of_host(memory, bytes);
  }
  std::shared_ptr<MemoryRegion> register_device(const DeviceMemory& memory) override {
    if (!card_settings().has_device_memory) {
      throw Error(ErrorCode::system, "this card knows no GPUs");
    }
    struct stat file {};
    if (fstat(memory.dma_buf, &file) != 0) throw_system_error("a dma-buf");
    Known known{memory.data, memory.bytes, memory.data, true, file.st_ino};
    if (!S_ISREG(file.st_mode)) return std::make_shared<Region>(known);
    void* const alias = mmap(nullptr, memory.bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
                             memory.dma_buf, static_cast<off_t>(memory.offset));
    if (alias == MAP_FAILED) throw_system_error("mapping a dma-buf");
    known.alias = static_cast<std::byte*>(alias);
    return std::make_shared<Region>(known, memory.bytes);
  }

  Room room(std::size_t) override {
    return theirs_ && !failed_ && out_.size() < kMostOut ? Room::yes : Room::none;
  }
  void put(const Put& put) override {
    Packet p;
    p.header = put.header;
    p.notice = put.notice;
    p.keeps = put.keeps;
    p.number = ++appended_;
    const std::size_t bytes = put.header.bytes;
    if (bytes <= kInlineBytes) {
      p.bytes.assign(put.payload, put.payload + bytes);
    } else {
      p.from = put.payload;
      p.local_key = put.region->remote_key();
      p.to = put.to;
    }
    add(std::move(p));
  }
  bool send(const MessageHeader& header, const void* control) override {
    if (!theirs_ || failed_ || out_.size() >= kMostOut) return false;
    Packet p;
    p.header = header;
    const auto* const bytes = static_cast<const std::byte*>(control);
    p.bytes.assign(bytes, bytes + header.bytes);
    add(std::move(p));
    return true;
  }
  bool submit() override { return false; }
  void poll() override {
    if (failed_) return;
    if (delay_ > 0) {
      --delay_;
    } else {
      carry(random_() % 4);
      delay_ = random_() % 3;
    }
    std::deque<Packet> came;
    bool ended = false;
    {
      const std::lock_guard lock(mine_->mutex);
      came.swap(mine_->packets);
      ended = mine_->ended;
    }
    for (const Packet& p : came) {
      if (failed_) return;
      if (understand(p) == Heard::wrong) return fail("it has sent what cannot be");
    }
    if (ended && !failed_) fail("it has hung up");
  }
  std::uint64_t appended() const override { return appended_; }
  std::uint64_t completed() const override { return completed_; }
  bool is_flushed() override { return true; }
  bool is_delivered() override {
    if (!card_settings().holds) carry(SIZE_MAX);
    return out_.empty() || failed_;
  }
  void drain(bool) override {
    give_up();
    const std::lock_guard lock(mine_->mutex);
    mine_->gone = true;
  }
  void close(bool) override {
    drain(true);
    failed_ = true;
    if (!theirs_) return;
    const std::lock_guard lock(theirs_->mutex);
    theirs_->ended = true;
  }

 private:
  static constexpr std::size_t kMostOut = 32;
  static constexpr Abilities kAbilities{.one_sided = true,
                                        .registers = true,
                                        .wakes = false,
                                        .confirms = true,
                                        .device_memory = true};

  void add(Packet p) { out_.push_back(std::move(p)); }
  void give_up() {
    out_.clear();
    completed_ = appended_;
  }

  /// So many packets at most.
  void carry(std::size_t most) {
    // What was carried before is known to be over now.
    completed_ = carried_;
    if (!theirs_ || card_settings().holds) return;
    for (; most > 0 && !out_.empty(); --most) {
      Packet p = std::move(out_.front());
      out_.pop_front();
      const std::lock_guard lock(theirs_->mutex);
      if (p.from != nullptr && !theirs_->gone) write(p);
      if (p.number > 0) carried_ = p.number;
      p.keeps.reset();
      theirs_->packets.push_back(std::move(p));
    }
  }
  static void write(const Packet& p) {
    Registry& registry = Registry::all();
    const std::lock_guard lock(registry.mutex);
    const std::size_t bytes = p.header.bytes;
    const Known& from = registry.find(p.local_key, p.from, bytes);
    auto* const to = reinterpret_cast<std::byte*>(p.to.address);
    const Known& there = registry.find(p.to.key, to, bytes);
    const std::byte* const source = from.alias + (p.from - from.begin);
    registry.counts.out_of_gpu += from.is_of_gpu ? 1 : 0;
    registry.counts.into_gpu += there.is_of_gpu ? 1 : 0;
    const std::ptrdiff_t at = to - there.begin;
    const auto writes = registry.writes.find(there.file);
    if (there.is_of_gpu && writes != registry.writes.end()) {
      writes->second(static_cast<std::size_t>(at), source, bytes);
    } else {
      std::memcpy(there.alias + at, source, bytes);
    }
  }
  Heard understand(const Packet& p) {
    if (p.header.kind == MessageHeader::control) return sink_.on_control(p.header, p.bytes.data());
    if (p.notice != 0) return sink_.on_notice(p.notice);
    if (p.header.bytes <= kInlineBytes) {
      const Sink::Target target = sink_.on_header(p.header);
      if (!target.known) return Heard::wrong;
      if (target.to != nullptr && !p.bytes.empty()) {
        std::memcpy(target.to, p.bytes.data(), p.bytes.size());
      }
    }
    return sink_.on_message(p.header);
  }

  std::mt19937 random_;
  std::uint64_t number_ = 0;
  const std::shared_ptr<Mailbox> mine_ = std::make_shared<Mailbox>();
  std::shared_ptr<Mailbox> theirs_;
  std::deque<Packet> out_;
  std::size_t delay_ = 0;
  std::uint64_t appended_ = 0, carried_ = 0, completed_ = 0;
};

}  // namespace

void set_card_writes(ino_t file, CardWrites writes) {
  Registry& registry = Registry::all();
  const std::lock_guard lock(registry.mutex);
  if (writes) {
    registry.writes[file] = std::move(writes);
  } else {
    registry.writes.erase(file);
  }
}

CardSettings& card_settings() { return Registry::all().settings; }

CardCounts card_counts() {
  Registry& registry = Registry::all();
  const std::lock_guard lock(registry.mutex);
  return registry.counts;
}

std::unique_ptr<Endpoint> make_card_endpoint(Endpoint::Sink& sink, unsigned seed) {
  return std::make_unique<CardEndpoint>(sink, seed);
}

}  // namespace tutti::test

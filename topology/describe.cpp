// See describe.h.
#include "topology/describe.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <span>
#include <vector>

#include "core/error.h"
#include "core/number.h"
#include "topology/abilities.h"
#include "topology/source.h"

namespace tutti::topology {
namespace {

constexpr int kMostGpus = 1024;

/// Runs of letters and digits, in lower case.
std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words(1);
  for (const char c : text) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) {
      words.back() += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    } else if (!words.back().empty()) {
      words.emplace_back();
    }
  }
  if (words.back().empty()) words.pop_back();
  return words;
}

/// "RTX4090" is "RTX 4090" for people, so words count where they are found, not as words.
int words_in(const std::vector<std::string>& words, const std::string& text) {
  int found = 0;
  for (const std::string& w : words) found += text.find(w) != text.npos ? 1 : 0;
  return found;
}

/// A model's numbers: of each name that it has ("MI50/MI60") the first word with a digit, and for
/// AMD's also without the form's letter, as tools print some ("MI325 OAM").
std::vector<std::string> numbers_of(std::string_view name) {
  std::vector<std::string> numbers;
  for (std::size_t at = 0; at <= name.size();) {
    const auto end = std::min(name.find('/', at), name.size());
    for (const std::string& w : words_of(name.substr(at, end - at))) {
      if (w.find_first_of("0123456789") == w.npos) continue;
      numbers.push_back(w);
      if (w.starts_with("mi") && w.ends_with('x')) numbers.push_back(w.substr(0, w.size() - 1));
      break;
    }
    at = end + 1;
  }
  return numbers;
}

/// Whether a word is a model's number, maybe with the family before it ("rtx4090") or the form
/// after it ("h100sxm"): not the L40 of an L40S, nor the A10 of an A100, nor the B200 of a GB200.
bool is_number(const std::string& number, const std::string& word) {
  const auto at = word.find(number);
  if (at == word.npos) return false;
  const std::string before = word.substr(0, at), after = word.substr(at + number.size());
  constexpr std::array kBefore{"",      "rtx",    "rtxpro", "gtx", "nvidia",
                               "tesla", "quadro", "dgx",    "hgx", "mi"};
  return std::ranges::find(kBefore, before) != kBefore.end() &&
         (after.empty() || after == "ti" || after == "ada" || after == "oam" ||
          after.starts_with("nvl") || after.starts_with("sxm") || after.starts_with("pcie") ||
          after == "80gb" || after == "40gb" || after == "32gb" || after == "16gb");
}

/// Whether names with one number are of different models: "RTX 6000 Ada", "Quadro RTX 6000" and
/// "RTX PRO 6000" are three, and an RTX 2080 is no RTX 2080 Ti.
bool are_different(const std::string& model, const std::string& given) {
  const auto says_more = [](const std::string& a, const std::string& b, const char* word) {
    return a.find(word) != a.npos && b.find(word) == b.npos;
  };
  return says_more(given, model, "quadro") || says_more(given, model, "rtxpro") ||
         says_more(model, given, "ti");
}

/// Links between GPUs of a host: numbers of two, and of links.
struct Wire {
  int a, b, links;
};
// DGX-1 and its likes, with Volta, as its owners' `nvidia-smi topo -m` shows it; with Pascal each
// pair that is joined has one.
constexpr std::array kCubeMesh{Wire{0, 1, 1}, Wire{0, 2, 1}, Wire{0, 3, 2}, Wire{0, 4, 2},
                               Wire{1, 2, 2}, Wire{1, 3, 1}, Wire{1, 5, 2}, Wire{2, 3, 2},
                               Wire{2, 6, 1}, Wire{3, 7, 1}, Wire{4, 5, 1}, Wire{4, 6, 1},
                               Wire{4, 7, 2}, Wire{5, 6, 2}, Wire{5, 7, 1}, Wire{6, 7, 2}};
// Eight dies of MI250X, two on a module.
constexpr std::array kModules{Wire{0, 1, 4}, Wire{2, 3, 4}, Wire{4, 5, 4}, Wire{6, 7, 4},
                              Wire{0, 6, 2}, Wire{2, 4, 2}, Wire{0, 2, 1}, Wire{4, 6, 1},
                              Wire{1, 3, 1}, Wire{1, 5, 1}, Wire{3, 7, 1}, Wire{5, 7, 1}};

/// Each eight GPUs are wired like that.
int wired(std::span<const Wire> wires, int a, int b) {
  if (a / 8 != b / 8) return 0;
  a %= 8;
  b %= 8;
  const auto found = std::ranges::find_if(
      wires, [&](const Wire& w) { return w.a == std::min(a, b) && w.b == std::max(a, b); });
  return found == wires.end() ? 0 : found->links;
}

/// Whether a switch joins the GPUs, as it does on modules since Volta's second.
bool has_switch(const GpuModel& m) {
  return m.vendor == 0x10de && m.links > 0 && !for_slots(m) && m.sm != 75 && m.sm != 86 &&
         m.name.find("SXM2") == m.name.npos;
}

/// Up to four GH200 on a module: each two are joined by six links.
bool is_quad(const GpuModel& m, int count) { return m.name == "GH200" && count <= 4; }

/// Links between two of `count` GPUs that no switch joins.
int links_between(const GpuModel& m, int count, bool bridged, int a, int b) {
  if (m.links == 0 || a == b) return 0;
  if (m.name.find("SXM2") != m.name.npos) {
    // Four are a full mesh, with two links where there are six.
    if (count <= 4) return std::max(1, m.links / std::max(1, count - 1));
    return std::min(wired(kCubeMesh, a, b), m.links == 4 ? 1 : 2);
  }
  if (m.name == "H200 NVL") {  // bridges for two, and for four
    return a / 4 == b / 4 ? m.links / (std::min(count, 4) - 1) : 0;
  }
  if (is_quad(m, count)) return 6;
  if (m.vendor == 0x10de) return bridged && (a ^ b) == 1 ? m.links : 0;
  if (m.links == 8) return wired(kModules, a, b);
  if (count - 1 <= m.links) return m.links / (count - 1);
  // Groups as large as full meshes can be; with two links it is rings of four.
  const int group = m.links == 2 ? 4 : m.links + 1;
  if (a / group != b / group) return 0;
  return m.links == 2 && (a - b) % 2 == 0 ? 0 : 1;
}

}  // namespace

bool comes_linked(const GpuModel& m) {
  if (m.vendor != 0x10de) return m.gcn.starts_with("94") || m.gcn.starts_with("95") || m.links == 8;
  return has_switch(m) || (m.links > 0 && m.name.find("SXM2") != m.name.npos);
}

const GpuModel* find_gpu_model(std::string_view name) {
  std::vector<std::string> given;
  for (std::string& w : words_of(name)) {
    if (w == "d" && !given.empty()) {
      given.back() += w;  // "RTX 4090 D"
    } else {
      given.push_back(std::move(w));
    }
  }
  const auto joined = [](const std::vector<std::string>& words) {
    std::string all;
    for (const std::string& w : words) all += w;
    return all;
  };
  const std::string all = joined(given);
  const auto says_only = [&](const std::string& model, const char* word) {
    return model.find(word) != model.npos && all.find(word) == all.npos;
  };
  const GpuModel* best = nullptr;
  double most = 0;
  for (const GpuModel& m : gpu_models()) {
    if (m.device == 0) continue;
    const auto words = words_of(m.name);
    const std::string model = joined(words);
    // Its number has to be there ("4090", "h100"), and of what else its name says as much as can
    // be.
    const auto is_there = [&](const std::string& number) {
      return std::ranges::any_of(given, [&](const auto& w) { return is_number(number, w); });
    };
    const std::vector<std::string> numbers = numbers_of(m.name);
    const auto number = std::ranges::find_if(numbers, is_there);
    if (number == numbers.end() || are_different(model, all)) continue;
    const int found = words_in(words, all);
    const double score = 1 + found + 0.01 * static_cast<double>(number->size()) -
                         0.001 * static_cast<double>(static_cast<int>(words.size()) - found) -
                         (says_only(model, "pcie") || says_only(model, "quadro") ? 0.5 : 0);
    if (score <= most) continue;
    most = score;
    best = &m;
  }
  return best;
}

std::string machine_xml(const GpuModel& model, int count, int ports, double port_rate,
                        bool bridged) {
  const bool amd = model.vendor == 0x1002;
  const int processors = count > 1 ? 2 : 1;
  const bool switched = has_switch(model) && count > 1 && !is_quad(model, count);
  const std::string speed = fmt::format("{:g} GT/s PCIe", model.pci_speed);
  const auto bus = [](int gpu) {
    return fmt::format("0000:{:02x}:{:02x}.0", gpu / 16 + 1, gpu % 16);
  };
  std::string xml = "<system version=\"1\">\n";
  int port = 0;
  for (int cpu = 0; cpu < processors; ++cpu) {
    xml += fmt::format(
        "  <cpu numaid=\"{}\" arch=\"x86_64\" vendor=\"GenuineIntel\" familyid=\"6\" "
        "modelid=\"143\">\n",
        cpu);
    for (int gpu = cpu * count / processors; gpu < (cpu + 1) * count / processors; ++gpu) {
      xml += fmt::format(
          "    <pci busid=\"0000:{:02x}:{:02x}.0\" class=\"0x060400\" link_speed=\"{}\" "
          "link_width=\"16\">\n",
          0x80 + gpu / 16, gpu % 16, speed);
      xml += fmt::format(
          "      <pci busid=\"{}\" class=\"{}\" vendor=\"0x{:04x}\" device=\"0x{:04x}\" "
          "link_speed=\"{}\" link_width=\"16\">\n        <gpu dev=\"{}\" {} rank=\"{}\" "
          "gdr=\"1\">\n",
          bus(gpu), amd ? "0x038000" : "0x030200", model.vendor, model.device, speed, gpu,
          amd ? fmt::format("sm=\"94\" gcn=\"gfx{}\" arch=\"1\"", model.gcn)
              : fmt::format("sm=\"{}\"", model.sm),
          gpu);
      if (switched) {
        xml += fmt::format(
            "          <nvlink target=\"fffffff:ff:ff.0\" count=\"{}\" tclass=\"0x068000\"/>\n",
            model.links);
      }
      for (int peer = 0; peer < count && !switched; ++peer) {
        const int links = links_between(model, count, bridged, gpu, peer);
        if (links == 0) continue;
        xml +=
            fmt::format("          <{} target=\"{}\" count=\"{}\" tclass=\"{}\"/>\n",
                        amd ? "xgmi" : "nvlink", bus(peer), links, amd ? "0x038000" : "0x030200");
      }
      xml += "        </gpu>\n      </pci>\n";
      for (; port_rate > 0 && port < ports && port * count <= gpu * ports; ++port) {
        xml += fmt::format(
            "      <pci busid=\"0001:{:02x}:{:02x}.0\" class=\"0x020000\" vendor=\"0x15b3\" "
            "device=\"0x1023\" link_speed=\"{}\" link_width=\"16\">\n        <nic>\n          <net "
            "name=\"net{}\" dev=\"{}\" speed=\"{:.0f}\" port=\"1\" gdr=\"1\"/>\n        </nic>\n "
            "     </pci>\n",
            port / 16 + 1, port % 16, speed, port, port, port_rate * 1000);
      }
      xml += "    </pci>\n";
    }
    xml += "  </cpu>\n";
  }
  return xml + "</system>\n";
}

Described parse_machine(std::string_view text) {
  const auto refuse = [&](std::string_view why) -> void {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("machine '{}': {}; write it as 8xH100, 2xRTX4090 or '2xA100-PCIe "
                            "nvlink' (with the bridge)",
                            printable(text), why));
  };
  Described d;
  const auto x = text.find('x');
  const auto count = x == text.npos ? std::nullopt : parse_number<std::int64_t>(text.substr(0, x));
  if (!count || *count < 1 || *count > kMostGpus) {
    refuse(fmt::format("it begins with no number of GPUs from 1 to {}", kMostGpus));
  }
  d.count = static_cast<int>(*count);
  auto model = text.substr(x + 1);
  if (const auto blank = model.find(' '); blank != model.npos) {
    const auto rest = trimmed(model.substr(blank));
    d.bridged = rest.starts_with("nvl");
    if (!rest.empty() && !d.bridged) refuse(fmt::format("what is '{}'?", printable(rest)));
    model = model.substr(0, blank);
  }
  d.model = find_gpu_model(model);
  if (d.model == nullptr) refuse("no GPU of that name is known");
  // Which are sold with their bridges.
  d.bridged = d.bridged || d.model->name.find("NVL") != d.model->name.npos;
  return d;
}

}  // namespace tutti::topology

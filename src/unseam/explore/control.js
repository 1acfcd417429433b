// One labelled control: a range, a choice, a number or a tick. It shows its value at once and notifies the server
// at most every few milliseconds, so that a fast hand does not fill the line.
const PAUSE = 12;
const HOLD = 150;

export default {
  template: `
    <label class="control" :class="kind">
      <span class="name">{{ label }}</span>
      <select v-if="kind == 'choice'" ref="box" :aria-label="spoken || label" @change="changed($event.target.value)">
        <option v-for="(text, key) in options" :key="key" :value="key">{{ text }}</option>
      </select>
      <input v-else-if="kind == 'tick'" ref="box" type="checkbox" role="switch" :aria-label="spoken || label"
        @change="changed($event.target.checked)">
      <input v-else-if="kind == 'number'" ref="box" type="number" :min="low" :max="high" :step="step"
        :aria-label="spoken || label" @change="changed($event.target.valueAsNumber)">
      <input v-else ref="box" type="range" :min="low" :max="high" :step="step" :disabled="disabled"
        :aria-label="spoken || label" :aria-valuetext="written" @input="moved">
      <output v-if="kind == 'range'">{{ written }}</output>
    </label>`,
  props: {
    kind: String,
    label: String,
    spoken: String,
    start: null,
    options: Object,
    low: Number,
    high: Number,
    step: Number,
    digits: Number,
    words: Array,
    unit: String,
    disabled: Boolean,
  },
  data() {
    return { now: this.start, waiting: undefined, timer: undefined, later: undefined, touched: 0 };
  },
  computed: {
    written() {
      if (this.words) return this.words[Math.round(this.now)] || "";
      return Number(this.now).toFixed(this.digits).replace("-", "\u2212") + (this.unit || "");
    },
  },
  mounted() {
    this.show(this.start);
  },
  beforeUnmount() {
    clearTimeout(this.timer);
    clearTimeout(this.later);
  },
  methods: {
    moved(event) {
      this.now = event.target.valueAsNumber;
      this.touched = Date.now();
      this.changed(this.now);
    },
    changed(value) {
      if (this.timer !== undefined) {
        this.waiting = value;
        return;
      }
      this.$emit("changed", value);
      this.timer = setTimeout(() => {
        this.timer = undefined;
        if (this.waiting === undefined) return;
        const latest = this.waiting;
        this.waiting = undefined;
        this.changed(latest);
      }, PAUSE);
    },
    put(value) {
      // what the server knows may be older than what the user does: it counts once the user has paused
      const received = Date.now();
      clearTimeout(this.later);
      if (received - this.touched > HOLD) this.show(value);
      else this.later = setTimeout(() => this.touched <= received && this.show(value), HOLD);
    },
    show(value) {
      const box = this.$refs.box;
      if (this.kind == "tick") box.checked = value;
      else box.value = value;
      this.now = value; // the box rounds to its step, the words do not
    },
  },
};

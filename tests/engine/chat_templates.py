"""Small chat templates with the whims of those in the wild."""

from tests.engine.models import CHATML

STRICT = """\
{{- bos_token -}}
{%- for message in messages -%}
    {%- if message.role == 'system' -%}{{ raise_exception('There is no system role') }}{%- endif -%}
    {%- if (message.role == 'user') != (loop.index0 % 2 == 0) -%}
        {{ raise_exception('Roles must alternate user/assistant') }}
    {%- endif -%}
    {%- if not message.content and message.role == 'assistant' -%}{{ raise_exception('A reply is empty') }}{%- endif -%}
    {{- '<|im_start|>' + message.role + '\n' + message.content | trim + '<|im_end|>\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\n' }}{%- endif -%}
"""
"""Refuses a system message, roles out of turn and an empty reply; trims (the Gemma and Mistral kinds)."""

DEAF = """\
{%- for message in messages if message.role != 'system' -%}
    {{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\n' }}{%- endif -%}
"""
"""Leaves the system message out without a word."""

BRACKETS = """\
{{- bos_token -}}
{%- for message in messages -%}
    {%- if message.role == 'user' -%}{{ '[INST] ' + message.content | trim + ' [/INST]' }}
    {%- else -%}{{ ' ' + message.content | trim + ' ' + eos_token }}
    {%- endif -%}
{%- endfor -%}
"""
"""Trims, puts a space of its own before a reply, and knows no generation prompt (the Llama 2 kind)."""

THINKER = """\
{%- set ns = namespace(think=true) -%}
{%- for message in messages -%}
    {%- if '/no_think' in message.content -%}{%- set ns.think = false -%}{%- endif -%}
    {{- '<|im_start|>' + message.role + '\n' -}}
    {%- if message.reasoning_content -%}{{ '<think>\n' + message.reasoning_content + '\n</think>\n\n' }}{%- endif -%}
    {{- message.content.split('</think>')[-1] + '<|im_end|>\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{- '<|im_start|>assistant\n' + ('<think>\n' if ns.think else '<think>\n\n</think>\n\n') -}}
{%- endif -%}
"""
"""Opens the thought itself, or closes it at once if somebody asks for that (the Qwen 3 and Nemotron kinds)."""

BLOCKS = """\
{%- for message in messages -%}
    {{- '<|im_start|>' + message.role + '\n' -}}
    {%- for block in message.content -%}{%- if block.type == 'text' -%}{{ block.text }}{%- endif -%}{%- endfor -%}
    {{- '<|im_end|>\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\n' }}{%- endif -%}
"""
"""Reads a list of blocks only (the kind of models that also see pictures)."""

ROUNDS = """\
{%- for message in messages -%}
    {%- if message.role == 'user' -%}{{ '[Round ' ~ (loop.index0 // 2 + 1) ~ ']\n\n' }}
        {{- '问：' + message.content + '\n\n答：' -}}
    {%- else -%}{{ message.content + '\n\n' }}
    {%- endif -%}
{%- endfor -%}
"""
"""Numbers its turns and ends them with no special token (the ChatGLM kind)."""

HARMONY = """\
{%- for message in messages -%}
    {{- '<|start|>' + message.role -}}
    {{- '<|channel|>final' if message.role == 'assistant' else '' -}}
    {{- '<|message|>' + message.content + '<|end|>' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|start|>assistant' }}{%- endif -%}
"""
"""Writes a reply into the final channel (the gpt-oss kind)."""

ALL = {
    "chatml": CHATML,
    "strict": STRICT,
    "deaf": DEAF,
    "brackets": BRACKETS,
    "thinker": THINKER,
    "blocks": BLOCKS,
    "rounds": ROUNDS,
    "harmony": HARMONY,
}

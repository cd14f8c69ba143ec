"""Providers of models: their addresses, keys and sign-ins, and what their models can do and cost."""

from typing import Annotated, ClassVar, Literal

from palinurus.config.section import Secret, Section, option


def _odd_address(said: str) -> str:
    known = not said or said.strip().lower().startswith(("http://", "https://", "${"))
    return "" if known else "is not an address; one begins with http:// or https://"


class OAuthOptions(Section, frozen=True):
    """How to sign in instead of using a key. Omitted values come from the built-in table. Not in OpenClaw."""

    client_id: Annotated[str | None, option("The id under which you have registered a client there.")] = None
    client_secret: Annotated[Secret | None, option("Its secret, where the provider gives one: text or ${NAME}.")] = None
    authorize_url: Annotated[str | None, option("Where a browser is sent to sign in.")] = None
    device_url: Annotated[str | None, option("Where a code for another device is asked for.")] = None
    token_url: Annotated[str | None, option("Where tokens are given and renewed.")] = None
    scopes: Annotated[tuple[str, ...] | None, option("What the sign-in may be used for.")] = None
    redirect_port: Annotated[
        int | None,
        option("The port on 127.0.0.1 to which the browser comes back. Unset: any free one.", ge=1, le=65535),
    ] = None


class ModelCost(Section, frozen=True):
    """US dollars per million tokens. A model without input and output prices is unpriced, not free."""

    foreign: ClassVar = {"": "tieredPricing"}

    input: Annotated[float | None, option("Price of a million tokens read.", ge=0)] = None
    output: Annotated[float | None, option("Price of a million tokens written.", ge=0)] = None
    cache_read: Annotated[
        float | None, option("Price of a million tokens served from the provider's cache. Unset: as input.", ge=0)
    ] = None
    cache_write: Annotated[
        float | None, option("Price of a million tokens put into the provider's cache. Unset: as input.", ge=0)
    ] = None


class ModelEntry(Section, frozen=True):
    foreign: ClassVar = {"": "compat headers params contextTokens"}

    id: Annotated[str, option("The model's name on the provider's wire.", longest=4096)]
    name: Annotated[str | None, option("The model's name for people.")] = None
    api: Annotated[str | None, option("The wire of this model when it differs from its provider's.")] = None
    context_window: Annotated[int | None, option("Tokens that the model can read at once.", gt=0)] = None
    max_tokens: Annotated[int | None, option("Tokens that the model may write in one reply.", gt=0)] = None
    reasoning: Annotated[bool | None, option("Whether the model can think before it answers.")] = None
    input: Annotated[
        tuple[str, ...] | None, option("What the model reads: text, image. Unset: as the built-in table says, or text.")
    ] = None
    cost: Annotated[ModelCost | None, option("US dollars per million tokens. Unset: as the built-in table says.")] = (
        None
    )


class ProviderEntry(Section, frozen=True):
    foreign: ClassVar = {"": "auth authHeader injectNumCtxForOpenAICompat request region params"}

    base_url: Annotated[str | None, option("Address of the provider's API.", odd=_odd_address)] = None
    api_key: Annotated[Secret | None, option("The key: text, ${NAME}, or a reference to where it is kept.")] = None
    api: Annotated[
        str | None,
        option(
            "The wire it speaks: openai-completions, openai-responses, anthropic-messages, google-generative-ai,"
            " ollama. Unset: openai-completions."
        ),
    ] = None
    headers: Annotated[dict[str, Secret], option("HTTP headers that are sent with every request.")] = {}
    timeout_seconds: Annotated[float | None, option("Seconds without a byte after which a call fails.", gt=0)] = None
    oauth: Annotated[OAuthOptions | None, option("How to sign in there, instead of a key.")] = None
    models: Annotated[tuple[ModelEntry, ...], option("The models it serves, with their windows and prices.")] = ()


class ModelsOptions(Section, frozen=True):
    """Model providers."""

    foreign: ClassVar = {"": "bedrockDiscovery pricing catalog"}

    mode: Annotated[
        Literal["merge", "replace"], option("Whether these providers add to the built-in ones or replace them.")
    ] = "merge"
    providers: Annotated[dict[str, ProviderEntry], option("Providers by id.")] = {}
    small_talk: Annotated[
        bool, option("Whether scout leaves small talk to the small embedded model where it is installed.")
    ] = True

    @property
    def by_name(self) -> dict[str, ProviderEntry]:
        """Providers by normalised id."""
        return {name.strip().lower(): entry for name, entry in self.providers.items()}
